package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
	"tidewire/internal/sleep"
)

// Server is the group as a client has it.
type Server interface {
	Join(ctx context.Context, topic, group, member string) (client.Joined, error)
	Heartbeat(ctx context.Context, topic, group string, j client.Joined, holds []uint32) (client.Held, error)
	Leave(ctx context.Context, topic, group string, j client.Joined) error
	Take(ctx context.Context, topic, group string, j client.Joined, limit int, wait time.Duration) ([]client.Leased, error)
	Settle(ctx context.Context, topic, group string, s client.Settlement) ([]client.Stale, error)
}

// Config of a Worker. What is not marked is required.
type Config struct {
	Server       Server
	Topic, Group string
	Member       string // "": the server names it
	Parallel     int    // messages in hand at a time
	// Do works on one message, beside others where Parallel is above 1. Its ctx ends when
	// the lease is lost.
	Do func(ctx context.Context, m client.Leased) error
	// Each takes the place of Do where a message is quickly done: one after the other, up
	// to Parallel of them are acknowledged together. An error ends the work.
	Each  func(m client.Leased) error
	Limit int64         // messages to succeed with; 0: no bound
	Idle  time.Duration // ends the work once so long nothing came; 0: never
	Note  func(format string, args ...any)
}

// Bounds of waiting. The pause before another try doubles from least to most.
const (
	takeWait   = 10 * time.Second
	leastPause = 250 * time.Millisecond
	mostPause  = 10 * time.Second
	// leaveLimit bounds the goodbye: a session that is not ended ends by itself.
	leaveLimit = 5 * time.Second
)

// Worker works on messages of a group.
type Worker struct {
	cfg Config

	mu      sync.Mutex
	done    int64
	started int64 // that may yet succeed, and those that have
	heard   time.Time
}

// New only keeps the configuration.
func New(cfg Config) *Worker { return &Worker{cfg: cfg} }

// Done is how many messages were worked on with success.
func (w *Worker) Done() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// errEnough ends the work: as many as asked for, or nothing came for long enough.
var errEnough = errors.New("that was all")

// Run works until ctx ends, until there is nothing more to do, or until an error that
// waiting does not mend. What is in hand then is finished first.
func (w *Worker) Run(ctx context.Context) error {
	member, pause := w.cfg.Member, leastPause
	w.heard = time.Now()
	for {
		joined, err := w.cfg.Server.Join(ctx, w.cfg.Topic, w.cfg.Group, member)
		if err == nil {
			member, pause = joined.Member, leastPause
			err = w.live(ctx, joined)
		}
		switch {
		case errors.Is(err, errEnough), ctx.Err() != nil:
			return nil
		case !passing(err) && !fenced(err):
			return err
		}
		wait := pause/2 + rand.N(pause/2)
		w.cfg.Note("%v; joining again in %s", err, wait.Round(time.Millisecond))
		if !sleep.For(ctx, wait) {
			return nil
		}
		pause = min(2*pause, mostPause)
	}
}

func passing(err error) bool {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Retryable()
	}
	return unheard(err)
}

// unheard says that no answer came. Records may be leased in it, that nobody works on for as
// long as their leases last, while those behind them go out. Who joins again has them first.
func unheard(err error) bool {
	var gone *client.Unreachable
	return errors.As(err, &gone)
}

// fenced says that a life is over: another one of the same member began, or its session
// ended.
func fenced(err error) bool {
	var p *client.Problem
	return errors.As(err, &p) && (p.Code == fault.Fenced.Code() || p.Code == fault.MemberNotFound.Code())
}

// live is one life of the member.
func (w *Worker) live(ctx context.Context, joined client.Joined) error {
	l := newLife(w, joined)
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // what is in hand is finished
	defer end(nil)
	var beside sync.WaitGroup
	beside.Go(func() { l.beat(life, end) })
	err := l.fetch(ctx, life)
	l.work.Wait()
	if cause := context.Cause(life); cause != nil {
		err = cause
	}
	end(nil)
	beside.Wait()
	if !fenced(err) && !unheard(err) { // who joins again keeps what it owns
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
		defer cancel()
		if gone := w.cfg.Server.Leave(bye, w.cfg.Topic, w.cfg.Group, joined); gone != nil && !fenced(gone) && err == nil {
			err = fmt.Errorf("leave the group: %w", gone)
		}
	}
	return err
}

// wanted says how many more messages may be begun, up to n; none: it is enough.
func (w *Worker) wanted(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Limit == 0 {
		return n
	}
	return int(min(int64(n), w.cfg.Limit-w.started))
}

func (w *Worker) begun() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
}

func (w *Worker) ended(ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok {
		w.done++
	} else {
		w.started--
	}
}

// quiet says that nothing came for as long as asked for.
func (w *Worker) quiet(came bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if came {
		w.heard = time.Now()
	}
	return w.cfg.Idle > 0 && w.started == w.done && time.Since(w.heard) >= w.cfg.Idle
}
