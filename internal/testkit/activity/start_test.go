package activity_test

import (
	"context"
	"errors"
	"testing"

	"tidewire/internal/testkit/activity"
)

// reports keeps what a test is told.
type reports struct {
	testing.TB
	failures int
	cleanups []func()
}

func (r *reports) Helper()               {}
func (r *reports) Errorf(string, ...any) { r.failures++ }
func (r *reports) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }

func (r *reports) end() {
	for _, f := range r.cleanups {
		f()
	}
}

func TestAnActivityEndsWithItsTest(t *testing.T) {
	for _, c := range []struct {
		name     string
		run      func(context.Context) error
		failures int
	}{
		{"ends in peace", func(ctx context.Context) error { <-ctx.Done(); return nil }, 0},
		{"says why it ended", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 0},
		{"breaks", func(ctx context.Context) error { <-ctx.Done(); return errors.New("broken") }, 1},
		{"never begins", func(context.Context) error { return errors.New("broken") }, 1},
	} {
		r, ended := &reports{TB: t}, false
		activity.Start(r, func(ctx context.Context) error {
			defer func() { ended = true }()
			return c.run(ctx)
		})
		if r.end(); !ended || r.failures != c.failures {
			t.Errorf("%s: ended %v with %d failures", c.name, ended, r.failures)
		}
	}
}
