package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/floor"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
	"tidewire/internal/bench/sock"
)

// subject is the server that is measured, with a topic for the purpose.
type subject struct {
	target load.Target
	topic  string
	// partitions of the topic, which may be another's.
	partitions int
	dir        string // whose disk is the floor
	bar        *benchProgress

	hurry   <-chan struct{} // closed: nobody is waited for any more
	process *child.Process  // of --spawn; nil: somebody else's
	args    []string        // it was started with
	client  *client.Client
	undo    []func() error // the last first
	remarks []string       // what a reader of the figures has to know
}

// defaultFrameBytes is about what a server takes for a frame if not told.
const defaultFrameBytes = 2 << 20

// closeTimeout bounds each step of the cleaning up, which an interrupt does not stop.
const closeTimeout = 10 * time.Second

// hurriedTimeout bounds it once it is to hurry.
const hurriedTimeout = 2 * time.Second

// subject finds or starts the server and makes the topic.
func (b *bench) subject(ctx context.Context, hurry <-chan struct{}) (_ *subject, err error) {
	s := &subject{hurry: hurry, dir: b.dir, bar: newBenchProgress(b.process, b.noProgress), topic: b.topic}
	defer func() {
		if err != nil {
			s.bar.finish()
			err = errors.Join(err, s.close())
		}
	}()
	server := cmp.Or(b.server, b.variable(serverVariable), defaultServer)
	if b.spawn {
		if server, err = s.spawn(ctx, b); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" || strings.TrimSuffix(u.Path, "/") != "" {
		return nil, usagef("--server: the benchmark speaks clear text to an address such as %s, not %q", defaultServer, server)
	}
	if s.client, err = client.New(server); err != nil {
		return nil, usagef("--server: %w", err)
	}
	s.target.Token = cmp.Or(b.token, b.variable(tokenVariable))
	if err := s.client.Bear(s.target.Token); err != nil {
		return nil, usagef("--token: %w", err)
	}
	s.target.Host = u.Host
	if u.Port() == "" {
		s.target.Host = u.Hostname() + ":80"
	}
	if s.target.Addr, err = sock.Resolve(ctx, s.target.Host); err != nil {
		return nil, &client.Unreachable{Server: server, Err: err}
	}
	if err := s.spawnMore(ctx, b); err != nil {
		return nil, err
	}
	if b.pid != 0 {
		if err := proc.CheckServer(b.pid, s.target.Addr.Port()); err != nil {
			return nil, usagef("--server-pid: %w", err)
		}
		s.target.PID = b.pid
	}
	if s.target.PID == 0 {
		s.remark("what the server used is not known: name its process with --server-pid, or let --spawn start one")
	}
	if floor.InMemory(b.dir) {
		s.remark("%s is in memory: a sync there does nothing; name a folder on a disk with --dir", b.dir)
	}
	return s, s.makeTopic(ctx, b)
}

func (s *subject) remark(format string, args ...any) {
	s.remarks = append(s.remarks, fmt.Sprintf(format, args...))
}

// spawn starts a server in a data folder of its own.
func (s *subject) spawn(ctx context.Context, b *bench) (server string, err error) {
	s.bar.Phase("starting a server", 1)
	dir, err := os.MkdirTemp(b.dir, "tidewire-bench-")
	if err != nil {
		return "", fmt.Errorf("a data folder for the server, in --dir: %w", err)
	}
	s.undo = append(s.undo, func() error { return os.RemoveAll(dir) })
	data, err := filepath.Abs(filepath.Join(dir, "data"))
	if err != nil {
		return "", err
	}
	s.args = append([]string{
		"serve", "--data", data, "--rpc", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--log-level", "warn",
	}, b.serveArgs...)
	if frame := b.bytes + 64<<10; frame > defaultFrameBytes {
		s.args = append(s.args, "--max-frame-bytes", strconv.Itoa(frame))
	}
	s.args = append(s.args, b.spawnArgs...) // the last word is the caller's
	if err := s.start(ctx, "127.0.0.1:0"); err != nil {
		return "", err
	}
	s.undo = append(s.undo, func() error {
		if s.process != nil {
			s.process.Stop()
		}
		return nil
	})
	return "http://" + s.process.Addr, nil
}

// spawnMore starts the other nodes of a cluster, each joining the first, and waits
// until all are brokers that a topic can be spread over.
func (s *subject) spawnMore(ctx context.Context, b *bench) error {
	if b.nodes == 1 {
		return nil
	}
	s.bar.Phase("starting more nodes", b.nodes-1)
	for i := 1; i < b.nodes; i++ {
		args := slices.Clone(s.args)
		args[slices.Index(args, "--data")+1] += "-" + strconv.Itoa(i+1)
		args = append(args, "--http", "127.0.0.1:0", "--name", "bench-"+strconv.Itoa(i+1), "--join", s.process.Gossip)
		node, err := child.Start(ctx, s.hurry, args...)
		if err != nil {
			return err
		}
		s.undo = append(s.undo, func() error { node.Stop(); return nil })
		addr, err := sock.Resolve(ctx, node.Addr)
		if err != nil {
			return err
		}
		s.target.Beside = append(s.target.Beside, load.Beside{Addr: addr, PID: node.PID})
		s.bar.Step(i)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		nodes, _, err := s.client.Nodes(ctx)
		if err != nil {
			return err
		}
		alive := 0
		for _, n := range nodes {
			if n.State == "alive" {
				alive++
			}
		}
		if alive == b.nodes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *subject) start(ctx context.Context, address string) (err error) {
	if s.process, err = child.Start(ctx, s.hurry, append(s.args, "--http", address)...); err != nil {
		return err
	}
	s.target.PID = s.process.PID
	return nil
}

// restart ends the server that was spawned and starts it again, at the same
// address and with the same data. stopped is when it had ended.
func (s *subject) restart(ctx context.Context, kill bool) (stopped time.Time, err error) {
	address := s.process.Addr
	if kill {
		s.process.Kill()
	} else {
		s.process.Stop()
	}
	stopped = time.Now()
	return stopped, s.start(ctx, address)
}

func (s *subject) makeTopic(ctx context.Context, b *bench) error {
	if s.topic != "" {
		t, err := s.client.Topic(ctx, s.topic)
		if err == nil && t.MaxMessageBytes > 0 && int64(b.bytes) > t.MaxMessageBytes {
			err = usagef("--bytes: topic %s takes messages of %d bytes at most", s.topic, t.MaxMessageBytes)
		}
		s.partitions = len(t.Layout.Partitions)
		return err
	}
	s.partitions = b.partitions
	s.topic = "bench-" + uuid.NewString()[:8]
	// The load may write more than a disk has: the oldest goes.
	keep := int64(max(benchFileBytes/b.partitions, 64<<20))
	most := int64(max(1<<20, b.bytes+4<<10))
	settings := client.TopicSettings{Name: s.topic, Partitions: &b.partitions, Retention: &client.Retention{Bytes: &keep}, MaxMessageBytes: &most}
	if _, _, err := s.client.CreateTopic(ctx, settings); err != nil {
		return err
	}
	if !b.spawn { // else it goes with the server
		s.undo = append(s.undo, s.deleteTopic)
	}
	return nil
}

func (s *subject) deleteTopic() error {
	limit := closeTimeout
	select {
	case <-s.hurry:
		limit = hurriedTimeout
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.client.DeleteTopic(ctx, s.topic); err != nil {
		return fmt.Errorf("topic %s is left (tidewire topic delete %s): %w", s.topic, s.topic, err)
	}
	return nil
}

// close takes back what was made, the last first.
func (s *subject) close() error {
	var faults []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		faults = append(faults, s.undo[i]())
	}
	s.undo = nil
	if s.client != nil {
		s.client.Close()
	}
	return errors.Join(faults...)
}
