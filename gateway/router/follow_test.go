package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
)

// reader is a subscription, and what it saw.
type reader struct {
	mu   sync.Mutex
	sub  *deliver.Subscription
	seen []string
	wake chan struct{}
}

// subscribe begins to read a topic's partition from its end, over a router.
func (w *world) subscribe(t *testing.T, broker bool) *reader {
	t.Helper()
	h := deliver.New(deliver.Config{Source: w.run(t, broker), Topology: w})
	activity.Start(t, h.Run)
	start, err := h.Resolve(t.Context(), deliver.Request{Topic: w.topic(), From: deliver.Latest})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{wake: make(chan struct{}, 1)}
	r.sub = h.Subscribe(start, func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	activity.Start(t, func(ctx context.Context) error { return r.read(ctx) })
	return r
}

func (r *reader) read(ctx context.Context) error {
	defer r.sub.Close()
	for {
		ev := r.sub.Next(ctx, deliver.Limit{Messages: 100, Bytes: 1 << 20})
		r.mu.Lock()
		switch ev.Kind {
		case deliver.Messages:
			for i := range ev.Run.Len() {
				r.seen = append(r.seen, fmt.Sprint(ev.Run.Offset(i)))
			}
		case deliver.Lost:
			r.seen = append(r.seen, ev.Gap.Reason)
		case deliver.Ended, deliver.Stuck:
			r.seen = append(r.seen, ev.Err.Error())
		}
		r.mu.Unlock()
		if ev.Kind == deliver.Ended {
			return nil
		}
		if ev.Kind != deliver.Idle {
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *reader) saw() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.seen, " ")
}

// A leader that moves, in every way it may: a reader goes on at the new one.
func TestAReaderFollowsAMovedLeader(t *testing.T) {
	for name, c := range map[string]struct {
		moves []func(w *world) // a second apart; from a to b, both have 0 and 1
		want  string
	}{
		"handed over": {[]func(w *world){func(w *world) { w.nodes[b].Elect(w.ref, memlog.All); w.lead(b, 2, a, b) }}, "0 1 2 3"},
		"died": {[]func(w *world){
			func(w *world) {
				w.nodes[a].gone.Store(true)
				w.nodes[a].Serve(w.ref, false)
				w.lead(ident.NodeID{}, 1, a, b)
			},
			func(w *world) { w.nodes[b].Elect(w.ref, memlog.All); w.lead(b, 2, b) },
		}, "0 1 2 3"},
		"fell silent": {[]func(w *world){
			func(w *world) { w.nodes[a].silent.Store(true) }, func(*world) {}, func(*world) {},
			func(w *world) { w.nodes[b].Elect(w.ref, memlog.All); w.lead(b, 2, b) },
		}, "0 1 2 3"},
		"its successor does not yet know what is committed": {[]func(w *world){
			func(w *world) {
				w.nodes[b].Elect(w.ref, memlog.All)
				w.nodes[b].Serve(w.ref, false)
				w.lead(b, 2, a, b)
			},
			func(w *world) { w.nodes[b].Serve(w.ref, true) },
		}, "0 1 2 3"},
		"the end of the log was lost": {[]func(w *world){func(w *world) { w.nodes[b].Elect(w.ref, 1); w.lead(b, 2, b) }}, "0 1 truncated 1 2"},
		"and moved back": {[]func(w *world){
			func(w *world) { w.nodes[b].Elect(w.ref, memlog.All); w.lead(b, 2, a, b) },
			func(w *world) {
				w.nodes[b].gone.Store(true)
				w.nodes[a].Elect(w.ref, memlog.All)
				w.nodes[a].Elect(w.ref, memlog.All)
				w.lead(a, 3, a)
			},
		}, "0 1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.lead(a, 1, a, b)
				r := w.subscribe(t, false)
				synctest.Wait()
				w.keep("k", a, b)
				w.keep("k", a, b)
				synctest.Wait()
				if got := r.saw(); got != "0 1" {
					t.Fatalf("saw %q at once", got)
				}
				for _, move := range c.moves {
					move(w)
					time.Sleep(time.Second)
				}
				leader := w.topic().Partitions[0].Leader
				w.keep("k", leader)
				synctest.Wait()
				began := time.Now()
				w.keep("k", leader)
				synctest.Wait()
				if got := r.saw(); got != c.want || time.Since(began) > 0 {
					t.Errorf("saw %q, want %q", got, c.want)
				}
			})
		})
	}
}

// A reader at a follower's node reads there, and goes to the leader when that
// follower stops serving.
func TestAReaderLeavesAFollowerThatDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lead(a, 1, a, here)
		r := w.subscribe(t, true)
		synctest.Wait()
		before := w.nodes[a].calls.Load()
		w.keep("k", a, here)
		w.keep("k", a, here)
		synctest.Wait()
		if got := r.saw(); got != "0 1" || w.nodes[a].calls.Load() > before+1 { // it may ask for the end of its epoch once
			t.Fatalf("saw %q, with %d calls of the leader", got, w.nodes[a].calls.Load()-before)
		}
		w.nodes[here].Serve(w.ref, false)
		w.keep("k", a)
		time.Sleep(time.Second)
		w.keep("k", here)
		w.nodes[here].Serve(w.ref, true)
		w.keep("k", a, here)
		time.Sleep(time.Second)
		if got := r.saw(); got != "0 1 2 3" {
			t.Errorf("saw %q", got)
		}
	})
}
