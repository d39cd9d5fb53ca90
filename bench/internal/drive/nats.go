package drive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/nats"
	"tidewire/bench/internal/plan"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/sock"
)

// natsServer is nats-server: core alone, or with JetStream, alone or three of them.
type natsServer struct {
	world  World
	dir    string
	nodes  int
	store  bool
	always bool

	children
	filled map[string]bool
}

// pullBatch is what a reader that catches up asks for at a time.
const pullBatch = 5000

func (s *natsServer) start(ctx context.Context) error {
	s.filled = map[string]bool{}
	ports, err := freePorts(s.nodes)
	if err != nil {
		return err
	}
	binary := child.Server{Binary: filepath.Join(s.world.Bin, "natsserver"), Ready: "ready in "}
	var wg sync.WaitGroup
	all, faults := make(children, s.nodes), make([]error, s.nodes)
	for i := range s.nodes {
		name := "n" + strconv.Itoa(i+1)
		args := []string{"-name", name}
		if s.store {
			args = append(args, "-store", filepath.Join(s.dir, name))
		}
		if s.always {
			args = append(args, "-sync-always")
		}
		if s.nodes > 1 {
			args = append(args, "-cluster-port", ports[i], "-routes", strings.Join(ports, ","))
		}
		wg.Go(func() { all[i], faults[i] = binary.Start(ctx, s.world.Hurry, args...) })
	}
	wg.Wait()
	for _, p := range all {
		if p != nil {
			s.children = append(s.children, p)
		}
	}
	return errors.Join(faults...)
}

// at is one of the servers, by "client" (TCP) or "ws".
func (s *natsServer) at(ctx context.Context, node int, listener string) (nats.Address, error) {
	pids := s.pids()
	pids[0], pids[node] = pids[node], pids[0]
	t, err := target(ctx, s.children[node].Listeners[listener], pids)
	return nats.Address{Target: t, WebSocket: listener == "ws"}, err
}

// stream makes a stream and tells which server leads it. A cluster that has just begun
// has nobody yet to ask.
func (s *natsServer) stream(ctx context.Context, name string) (node int, err error) {
	admin, err := s.at(ctx, 0, "client")
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		leader, err := nats.MakeStream(admin, name, name, s.nodes)
		if err == nil {
			for i := range s.nodes {
				if leader == "n"+strconv.Itoa(i+1) {
					node = i
				}
			}
			return node, nil
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-tick.C:
		}
	}
}

func (s *natsServer) measure(ctx context.Context, c plan.Case, turn int) (x figures.Sample, err error) {
	name := topicName(c, turn)
	if c.Records > 0 {
		name = c.Name
	}
	web, err := s.at(ctx, 0, "ws")
	if err != nil {
		return figures.Sample{}, err
	}
	tcp, err := s.at(ctx, 0, "client")
	if err != nil {
		return figures.Sample{}, err
	}
	if s.store && !s.filled[name] {
		node, err := s.stream(ctx, name)
		if err != nil {
			return figures.Sample{}, err
		}
		if tcp, err = s.at(ctx, node, "client"); err != nil {
			return figures.Sample{}, err
		}
		if web, err = s.at(ctx, node, "ws"); err != nil {
			return figures.Sample{}, err
		}
		if c.Records == 0 { // else later turns read it
			defer func() {
				if undo := nats.DropStream(tcp, name); err == nil {
					err = undo // an idle stream is another case's heartbeats
				}
			}()
		}
	}
	r := records(c, name)
	w := load.Publish{
		Target: tcp.Target, Records: r, Transport: load.WebSocket, Publishers: c.Publishers, Window: c.Window, Plan: loadPlan(c),
		Speak: func() load.Dialect { return nats.JetStream(tcp, name, r) },
	}
	switch c.Kind {
	case plan.Publish:
		out, err := w.Run(ctx, quiet{})
		return outcome(out, err, s.pids())
	case plan.Fanout:
		out, err := s.fanout(ctx, c, name, tcp, web)
		return outcome(out, err, s.pids())
	case plan.Requests:
		return s.requests(ctx, c, name, web)
	case plan.Groups, plan.CatchUp:
		if !s.filled[name] {
			w.Publishers, w.Window = 1, 1000
			if err := w.Fill(ctx, c.Records, quiet{}); err != nil {
				return figures.Sample{}, err
			}
			s.filled[name] = true
		}
		return s.read(ctx, c, name, tcp, turn)
	}
	return figures.Sample{}, errKind
}

func (s *natsServer) fanout(ctx context.Context, c plan.Case, name string, tcp, web nats.Address) (load.Outcome, error) {
	f := fanout(c, web.Target, name)
	subject := name
	if s.store {
		subject = name + "-delivered"
		if err := nats.PushTo(tcp, name, subject); err != nil {
			return load.Outcome{}, err
		}
	}
	f.Speak = func() load.Dialect {
		r := f.Records
		if c.OwnKeys {
			r.Keys = c.Subscribers
		}
		if s.store {
			return nats.JetStream(tcp, name, r)
		}
		return nats.Core(tcp, subject, r)
	}
	f.Listen = func(i int) load.Ear {
		if c.OwnKeys {
			return nats.Keyed(web, subject, i)
		}
		return nats.Subscriber(web, subject)
	}
	return f.Run(ctx, quiet{})
}

// requests has responders on loops of their own.
func (s *natsServer) requests(ctx context.Context, c plan.Case, subject string, web nats.Address) (figures.Sample, error) {
	loop, err := sock.NewLoop(0)
	if err != nil {
		return figures.Sample{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer loop.Close()
	defer wg.Wait()
	defer cancel(context.Canceled)
	wg.Go(func() {
		if err := loop.Run(ctx); err != nil {
			cancel(err)
		}
	})
	for range c.Subscribers {
		x := &responder{ear: nats.Responder(web, subject), ended: cancel}
		conn, err := x.ear.Open(web.Target)
		if err != nil {
			return figures.Sample{}, err
		}
		if err := loop.Add(conn, x); err != nil {
			return figures.Sample{}, err
		}
	}
	r := records(c, subject)
	out, err := load.Publish{
		Target: web.Target, Records: r, Transport: load.WebSocket, Publishers: c.Publishers, Window: c.Window, Plan: loadPlan(c),
		Speak: func() load.Dialect { return nats.Requests(web, subject, r, c.Window) },
	}.Run(ctx, quiet{})
	return outcome(out, err, s.pids())
}

// responder is a connection that answers by itself.
type responder struct {
	ear   load.Ear
	ended context.CancelCauseFunc
}

// Receive answers.
func (r *responder) Receive(b []byte) (int, error) {
	return r.ear.Hear(b, func(int64) error { return nil })
}

// Ended ends the load.
func (r *responder) Ended(err error) { r.ended(fmt.Errorf("a responder: %w", err)) }

// read works through a backlog.
func (s *natsServer) read(ctx context.Context, c plan.Case, stream string, at nats.Address, turn int) (figures.Sample, error) {
	consumer := "c" + strconv.Itoa(turn)
	batch, acks := pullBatch, false
	var err error
	if c.Kind == plan.Groups {
		batch, acks = c.Window, true
		err = nats.Work(at, stream, consumer, c.Subscribers*c.Window)
	} else {
		err = nats.ReadAll(at, stream, consumer)
	}
	if err != nil {
		return figures.Sample{}, err
	}
	run, err := load.Backlog{
		Target: at.Target, Records: records(c, stream), Count: c.Records, Readers: c.Subscribers,
		Listen: func(int) load.Ear { return nats.Pull(at, stream, consumer, batch, acks) },
	}.Run(ctx, quiet{})
	if err != nil {
		return figures.Sample{}, err
	}
	return sample(run, 0, s.pids())
}

func (s *natsServer) hold(ctx context.Context, c plan.Case, turn int) (*load.Held, error) {
	web, err := s.at(ctx, 0, "ws")
	if err != nil {
		return nil, err
	}
	return load.Connections{
		Target: web.Target, Transport: load.WebSocket, Count: c.Subscribers, Listen: func(int) load.Ear { return nats.Subscriber(web, topicName(c, turn)) },
	}.Open(ctx, quiet{})
}

func (s *natsServer) processes() []*child.Process { return s.children }

func (s *natsServer) stop() { s.children.stop(s.dir) }
