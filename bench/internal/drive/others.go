package drive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"tidewire/bench/internal/centrifugo"
	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/bench/internal/redis"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/load"
)

// centrifugoServer is the library that Centrifugo is built on, as a server.
type centrifugoServer struct {
	world World
	children
}

func (s *centrifugoServer) start(ctx context.Context) error {
	p, err := child.Server{Binary: filepath.Join(s.world.Bin, "centrifuge"), Ready: "ready in "}.Start(ctx, s.world.Hurry)
	if err == nil {
		s.children = children{p}
	}
	return err
}

func (s *centrifugoServer) target(ctx context.Context) (load.Target, error) {
	return target(ctx, s.children[0].Listeners["ws"], s.pids())
}

func (s *centrifugoServer) measure(ctx context.Context, c plan.Case, turn int) (figures.Sample, error) {
	at, err := s.target(ctx)
	if err != nil {
		return figures.Sample{}, err
	}
	if c.Kind != plan.Fanout {
		return figures.Sample{}, errKind
	}
	name := topicName(c, turn)
	f := fanout(c, at, name)
	f.Speak = func() load.Dialect {
		r := f.Records
		if c.OwnKeys {
			r.Keys = c.Subscribers
		}
		return centrifugo.Publisher(name, r)
	}
	f.Listen = func(i int) load.Ear {
		if c.OwnKeys {
			return centrifugo.Keyed(name, i)
		}
		return centrifugo.Subscriber(name)
	}
	out, err := f.Run(ctx, quiet{})
	return outcome(out, err, s.pids())
}

func (s *centrifugoServer) hold(ctx context.Context, c plan.Case, turn int) (*load.Held, error) {
	at, err := s.target(ctx)
	if err != nil {
		return nil, err
	}
	return load.Connections{
		Target: at, Transport: load.WebSocket, Count: c.Subscribers, Listen: func(int) load.Ear { return centrifugo.Subscriber(topicName(c, turn)) },
	}.Open(ctx, quiet{})
}

func (s *centrifugoServer) processes() []*child.Process { return s.children }

func (s *centrifugoServer) stop() { s.children.stop("") }

// redisServer is Redis with a stream.
type redisServer struct {
	world World
	dir   string
	port  string
	children
	filled map[string]bool
}

// redisRead is how many records a reader of history asks for at a time.
const redisRead = 1000

func (s *redisServer) start(ctx context.Context) error {
	s.filled = map[string]bool{}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	s.port = ports[0]
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	p, err := child.Server{Binary: s.world.Redis, Ready: "Ready to accept connections"}.Start(ctx, s.world.Hurry,
		"--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--auto-aof-rewrite-percentage", "0", "--maxclients", "10000", "--daemonize", "no")
	if err == nil {
		s.children = children{p}
	}
	return err
}

func (s *redisServer) measure(ctx context.Context, c plan.Case, turn int) (figures.Sample, error) {
	at, err := target(ctx, "127.0.0.1:"+s.port, s.pids())
	if err != nil {
		return figures.Sample{}, err
	}
	name := topicName(c, turn)
	if c.Records > 0 {
		name = c.Name
	}
	w := load.Publish{
		Target: at, Records: records(c, name), Transport: load.WebSocket, Publishers: c.Publishers, Window: c.Window, Plan: loadPlan(c),
	}
	w.Speak = func() load.Dialect { return redis.Publisher(w.Records) }
	switch c.Kind {
	case plan.Publish:
		out, err := w.Run(ctx, quiet{})
		x, err := outcome(out, err, s.pids())
		if undo := redis.Do(at, "UNLINK", name); err == nil {
			err = undo // its memory is another case's
		}
		return x, err
	case plan.Groups, plan.CatchUp:
		if !s.filled[name] {
			w.Publishers, w.Window = 1, 1000
			if err := w.Fill(ctx, c.Records, quiet{}); err != nil {
				return figures.Sample{}, err
			}
			s.filled[name] = true
		}
		return s.read(ctx, c, at, name, turn)
	}
	return figures.Sample{}, errKind
}

func (s *redisServer) read(ctx context.Context, c plan.Case, at load.Target, stream string, turn int) (figures.Sample, error) {
	group := "g" + strconv.Itoa(turn)
	if c.Kind == plan.Groups {
		if err := redis.Do(at, "XGROUP", "CREATE", stream, group, "0"); err != nil {
			return figures.Sample{}, err
		}
	}
	run, err := load.Backlog{
		Target: at, Records: records(c, stream), Count: c.Records, Readers: c.Subscribers,
		Listen: func(i int) load.Ear {
			if c.Kind == plan.Groups {
				return redis.Consumer(stream, group, fmt.Sprintf("m%d", i), c.Window)
			}
			return redis.History(stream, redisRead)
		},
	}.Run(ctx, quiet{})
	if err != nil {
		return figures.Sample{}, err
	}
	return sample(run, 0, s.pids())
}

func (s *redisServer) hold(context.Context, plan.Case, int) (*load.Held, error) { return nil, errKind }

func (s *redisServer) processes() []*child.Process { return s.children }

func (s *redisServer) stop() { s.children.stop(s.dir) }
