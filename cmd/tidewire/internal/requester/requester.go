package requester

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
	"tidewire/internal/sleep"
)

// Server is one that can be asked.
type Server interface {
	Ask(ctx context.Context, q client.Request) (client.Reply, error)
	Server() string
}

// Config of a request. All of it is required.
type Config struct {
	Request client.Request // with a correlation id
	Servers []Server       // the first is asked first
	// More finds further servers. It is called once, beside the first try, and may block
	// until its ctx ends.
	More func(ctx context.Context) []Server
	Note func(format string, args ...any)
}

const (
	// The pause after a round of all servers; it doubles.
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
	// answerGrace is how much later than the deadline a server may say that it has passed.
	answerGrace = time.Second
)

// Late says that the deadline has passed without a reply.
type Late struct {
	Timeout time.Duration
	Err     error // what was heard last; nil: nothing
}

func (e *Late) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("no reply came within %s", e.Timeout)
	}
	return fmt.Sprintf("no reply came within %s: %v", e.Timeout, e.Err)
}
func (e *Late) Unwrap() error { return e.Err }

// Do asks until there is a reply, an error that waiting does not mend, or the deadline.
func Do(ctx context.Context, cfg Config) (client.Reply, error) {
	deadline := time.Now().Add(cfg.Request.Timeout)
	asking, cancel := context.WithDeadline(ctx, deadline.Add(answerGrace))
	found := make(chan []Server, 1)
	var beside sync.WaitGroup
	beside.Go(func() { found <- cfg.More(asking) })
	defer beside.Wait()
	defer cancel()
	servers, pause, q := cfg.Servers, leastPause, cfg.Request
	sent := false // a try that ended without an answer may have left the request with the cluster
	for i := 0; ; i++ {
		reply, err := servers[i%len(servers)].Ask(asking, q)
		switch {
		case sent && code(err) == fault.NoResponders.Code(): // nothing of this try; its reply may yet come
		case err == nil, ctx.Err() != nil:
			return reply, err
		case asking.Err() != nil:
			return reply, &Late{Timeout: cfg.Request.Timeout}
		case code(err) == fault.ReplyTimeout.Code():
			return reply, &Late{cfg.Request.Timeout, err}
		case !passing(err):
			return reply, err
		}
		sent = sent || code(err) == "" || code(err) == fault.UnknownOutcome.Code()
		select {
		case more := <-found:
			servers = join(servers, more)
		default:
		}
		wait := time.Duration(0) // for a server that was not asked yet
		if (i+1)%len(servers) == 0 {
			wait, pause = pause, min(2*pause, mostPause)
		}
		left := time.Until(deadline) - wait
		if left < time.Millisecond {
			return reply, &Late{cfg.Request.Timeout, err}
		}
		cfg.Note("%v; asking %s", err, servers[(i+1)%len(servers)].Server())
		if !sleep.For(ctx, wait) {
			return reply, err
		}
		q.Timeout = left.Truncate(time.Millisecond)
	}
}

// passing says that another server, or this one a moment later, may do better.
func passing(err error) bool {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Retryable() && p.Code != fault.NoResponders.Code()
	}
	var gone *client.Unreachable
	return errors.As(err, &gone)
}

// code is that of a problem; "": no answer came.
func code(err error) string {
	if p := (*client.Problem)(nil); errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// join adds servers that are not among those that are known.
func join(known, more []Server) []Server {
	seen := map[string]bool{}
	for _, s := range known {
		seen[s.Server()] = true
	}
	for _, s := range more {
		if !seen[s.Server()] {
			known = append(known[:len(known):len(known)], s)
		}
	}
	return known
}
