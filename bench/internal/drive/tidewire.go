package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/load"
)

// tidewire is one node, or a cluster.
type tidewire struct {
	world World
	dir   string
	nodes int

	children
	filled map[string]bool // topics with a backlog
}

func (t *tidewire) server() child.Server {
	return child.Server{Binary: t.world.Tidewire, Name: "tidewire", Ready: "ready in "}
}

// arguments of a node.
func (t *tidewire) arguments(name string) []string {
	return []string{
		"serve", "--data", filepath.Join(t.dir, name), "--name", name, "--rpc", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--log-level", "warn",
	}
}

func (t *tidewire) start(ctx context.Context) error {
	t.filled = map[string]bool{}
	for i := range t.nodes {
		args := append(t.arguments("n"+strconv.Itoa(i+1)), "--http", "127.0.0.1:0", "--max-connection-rate", "0")
		if i > 0 {
			args = append(args, "--join", t.children[0].Gossip)
		}
		p, err := t.server().Start(ctx, t.world.Hurry, args...)
		if err != nil {
			return err
		}
		t.children = append(t.children, p)
	}
	return t.alive(ctx, t.nodes)
}

// alive waits until so many nodes are.
func (t *tidewire) alive(ctx context.Context, n int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var all struct{ Nodes []struct{ State string } }
		if err := t.call(ctx, http.MethodGet, "/nodes/", nil, &all); err != nil {
			return err
		}
		count := 0
		for _, x := range all.Nodes {
			if x.State == "alive" {
				count++
			}
		}
		if count >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are alive: %w", count, n, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// call says one thing to the first node.
func (t *tidewire) call(ctx context.Context, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+t.children[0].Addr+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
		req.Header.Del("Content-Type")
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s", method, path, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// topic makes a topic and tells where its first partition is led.
func (t *tidewire) topic(ctx context.Context, name string, partitions int) (load.Target, error) {
	type described struct {
		Layout struct{ Partitions []struct{ Leader string } }
	}
	var made described
	settings := map[string]any{"name": name, "partitions": partitions, "replicas": t.nodes, "retention": map[string]any{"bytes": int64(1 << 30)}}
	if err := t.call(ctx, http.MethodPost, "/topics/", settings, &made); err != nil {
		return load.Target{}, err
	}
	for t.nodes > 1 && made.Layout.Partitions[0].Leader == "" {
		if err := t.call(ctx, http.MethodGet, "/topics/"+name+"/metadata", nil, &made); err != nil {
			return load.Target{}, err
		}
	}
	at := 0
	if t.nodes > 1 {
		at = slices.IndexFunc([]string{"n1", "n2", "n3"}, func(n string) bool { return n == made.Layout.Partitions[0].Leader })
		if at < 0 {
			return load.Target{}, fmt.Errorf("the leader of %s is %q", name, made.Layout.Partitions[0].Leader)
		}
	}
	return t.target(ctx, at)
}

// target is one node as clients see it; what all of them use counts.
func (t *tidewire) target(ctx context.Context, at int) (load.Target, error) {
	pids := slices.Clone(t.pids())
	pids[0], pids[at] = pids[at], pids[0]
	return target(ctx, t.children[at].Addr, pids)
}

func (t *tidewire) measure(ctx context.Context, c plan.Case, turn int) (x figures.Sample, err error) {
	if c.Kind == plan.Storm {
		return t.storm(ctx, c, turn)
	}
	name := topicName(c, turn)
	if c.Records > 0 {
		name = c.Name
	}
	if c.Records > 0 && t.filled[name] {
		at, err := t.target(ctx, 0)
		if err != nil {
			return figures.Sample{}, err
		}
		return t.read(ctx, c, at, name, turn)
	}
	var at load.Target
	for i := range max(1, c.Topics) {
		if at, err = t.topic(ctx, name+suffix(i), c.Partitions); err != nil {
			return figures.Sample{}, err
		}
		if c.Records == 0 { // else later turns read it
			defer func() {
				if undo := t.call(ctx, http.MethodDelete, "/topics/"+name+suffix(i), nil, nil); err == nil {
					err = undo // it is another case's load on the disk
				}
			}()
		}
	}
	w := load.Publish{Target: at, Records: records(c, name), Transport: load.WebSocket, Publishers: c.Publishers, Window: c.Window, Plan: loadPlan(c)}
	switch c.Kind {
	case plan.Publish:
		if c.Topics > 1 {
			var next atomic.Int64 // publishers connect several at a time
			w.Each = func(r load.Records) load.Records {
				r.Topic += suffix(int(next.Add(1)) % c.Topics)
				return r
			}
		}
		out, err := w.Run(ctx, quiet{})
		return outcome(out, err, t.pids())
	case plan.Fanout:
		out, err := fanout(c, at, name).Run(ctx, quiet{})
		return outcome(out, err, t.pids())
	case plan.Requests:
		out, err := load.Requests{
			Target: at, Records: records(c, name), Requesters: c.Publishers, Window: c.Window, Responders: c.Subscribers, Mode: "shared", Plan: loadPlan(c),
		}.Run(ctx, quiet{})
		return outcome(out, err, t.pids())
	case plan.Groups, plan.CatchUp:
		w.Publishers, w.Window = 1, 1000
		if err := w.Fill(ctx, c.Records, quiet{}); err != nil {
			return figures.Sample{}, err
		}
		t.filled[name] = true
		return t.read(ctx, c, at, name, turn)
	}
	return figures.Sample{}, errKind
}

// suffix tells the topics of a case apart.
func suffix(i int) string {
	if i == 0 {
		return ""
	}
	return "-" + strconv.Itoa(i)
}

// read works through a backlog.
func (t *tidewire) read(ctx context.Context, c plan.Case, at load.Target, topic string, turn int) (figures.Sample, error) {
	if c.Kind == plan.Groups {
		run, err := load.Groups{
			Target: at, Topic: topic, Group: "g" + strconv.Itoa(turn), Mode: "shared", Records: c.Records, Members: c.Subscribers, InFlight: c.Window, Batch: c.Window,
		}.Run(ctx, 1, quiet{})
		if err != nil {
			return figures.Sample{}, err
		}
		return sample(run.Run, run.Stale, t.pids())
	}
	run, err := load.Backlog{Target: at, Records: records(c, topic), Count: c.Records, Readers: 1}.Run(ctx, quiet{})
	if err != nil {
		return figures.Sample{}, err
	}
	return sample(run, 0, t.pids())
}

func fanout(c plan.Case, at load.Target, topic string) load.Fanout {
	return load.Fanout{
		Target: at, Records: records(c, topic), Transport: load.WebSocket, Subscribers: c.Subscribers, OwnKeys: c.OwnKeys,
		Window: c.Window, Rate: c.Rate, Plan: loadPlan(c),
	}
}

func (t *tidewire) hold(ctx context.Context, c plan.Case, turn int) (*load.Held, error) {
	name := topicName(c, turn)
	at, err := t.topic(ctx, name, c.Partitions)
	if err != nil {
		return nil, err
	}
	return load.Connections{Target: at, Topic: name, Transport: load.WebSocket, Count: c.Subscribers}.Open(ctx, quiet{})
}

func (t *tidewire) processes() []*child.Process { return t.children }

func (t *tidewire) stop() { t.children.stop(t.dir) }
