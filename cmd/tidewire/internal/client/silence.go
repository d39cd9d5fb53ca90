package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// answerSilence ends a call of which no byte of an answer comes: a node answers each
// within some ten seconds, if only that it cannot. One that is paused still takes
// connections, for its kernel does that.
const answerSilence = 15 * time.Second

// silence ends a call once nothing has come for so long.
type silence struct {
	limit time.Duration
	fired atomic.Bool
	timer *time.Timer
	end   context.CancelFunc
}

func listen(ctx context.Context, limit time.Duration) (context.Context, *silence) {
	ctx, end := context.WithCancel(ctx)
	s := &silence{limit: limit, end: end}
	s.timer = time.AfterFunc(limit, func() {
		s.fired.Store(true)
		end()
	})
	return ctx, s
}

func (s *silence) stop() {
	s.timer.Stop()
	s.end()
}

// cause is why a call failed: silence, if that ended it.
func (s *silence) cause(err error) error {
	if err == nil || errors.Is(err, io.EOF) || !s.fired.Load() {
		return err
	}
	return fmt.Errorf("nothing has come from it for %s: it may be paused, or its machine or disk overloaded", s.limit)
}

// body is an answer as it comes.
type body struct {
	io.ReadCloser
	quiet *silence
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.quiet.timer.Reset(b.quiet.limit)
	}
	return n, b.quiet.cause(err)
}

// Close may be called while Read waits.
func (b body) Close() error {
	b.quiet.stop()
	return b.ReadCloser.Close()
}
