package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/queue"
)

// room has so many bytes, and lets anything in alone.
type room struct {
	mu         sync.Mutex
	most, busy int64
	queue      *queue.Queue
}

func newRoom(most int64) *room {
	r := &room{most: most}
	r.queue = queue.New(&r.mu, r.admit)
	return r
}

func (r *room) admit(n int64) bool {
	if r.busy > 0 && r.busy+n > r.most {
		return false
	}
	r.busy += n
	return true
}

func (r *room) try(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.Empty() && r.admit(n)
}

func (r *room) leave(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy -= n
	r.queue.Admit()
}

func TestNobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100)
		if !r.try(60) || r.try(60) {
			t.Fatal("60 of 100 go in once")
		}
		var mu sync.Mutex
		var in []string
		who := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(in) // who comes out at once has no order
			return strings.Join(in, ", ")
		}
		enter := func(name string, n int64, limit time.Duration) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("too late"))
			go func() {
				defer cancel()
				if err := r.queue.Wait(ctx, n); err != nil {
					name += ": " + err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				in = append(in, name)
			}()
			synctest.Wait()
		}
		enter("big", 90, time.Second)
		enter("small", 30, time.Minute)
		if who() != "" || r.try(1) {
			t.Fatal("someone overtook:", who())
		}
		time.Sleep(2 * time.Second) // the big one gives up, and the small one fits
		if who() != "big: too late, small" {
			t.Fatal(who())
		}
		enter("huge", 1000, time.Minute)
		r.leave(60)
		if who() != "big: too late, small" {
			t.Fatal(who())
		}
		r.leave(30)
		if who() != "big: too late, huge, small" {
			t.Fatal(who())
		}
		r.leave(1000)
		if r.busy != 0 {
			t.Errorf("%d bytes are left inside", r.busy)
		}
	})
}
