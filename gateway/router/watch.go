package router

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

const (
	// watchTime is how long a leader is asked to wait for records.
	watchTime = 5 * time.Second
	// watchBytes bounds what it then sends.
	watchBytes = 512 << 10
	// watchPause is how long those who wait wait after an error, at least.
	watchPause = 20 * time.Millisecond
	// mostWatchers bounds the calls that wait at one node: a connection takes so
	// many at once, and others than these must find room. Beyond it a place is
	// looked at every watchSlow instead.
	mostWatchers = 2048
	watchSlow    = 200 * time.Millisecond
	// knownTime is how long what was read of a leader's end is given to others who
	// ask, and knownBytes bounds all of it.
	knownTime  = time.Second
	knownBytes = 64 << 20
)

// watched is a place at which somebody waits.
type watched struct {
	ref   ident.Partition
	after ident.Offset
}

// watcher asks a leader for what comes next.
type watcher struct {
	watched
	at     place
	peer   Peer
	more   chan struct{} // closed when there may be more
	over   bool          // it is closed
	cancel context.CancelFunc
}

// endLocked lets those who wait look for themselves.
func (w *watcher) endLocked() {
	if !w.over {
		w.over = true
		close(w.more)
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// Wait gives a channel that closes once the high watermark is above after, or
// the partition is no longer served; it may close earlier.
func (r *Router) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	at, err := r.find(p)
	if err != nil {
		return nil, err
	}
	if at.replica {
		more, err := r.cfg.Local.Wait(p, after)
		if err == nil || at.mine {
			return more, err
		}
	}
	peer, err := r.peer(p, at)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, fault.New(fault.LeaderUnavailable, "the node is shutting down")
	}
	key := watched{p, after}
	if w := r.watchers[key]; w != nil && !w.over {
		return w.more, nil
	}
	w := &watcher{watched: key, at: at, peer: peer, more: make(chan struct{})}
	r.watchers[key] = w
	r.fresh = append(r.fresh, w)
	select {
	case r.wake <- struct{}{}:
	default: // Run has yet to look at the one before
	}
	return w.more, nil
}

// start runs the watchers that Wait made, and forgets from time to time.
func (r *Router) start(ctx context.Context, g *errgroup.Group) error {
	tick := time.NewTicker(knownTime)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
			r.mu.Lock()
			fresh := r.fresh
			r.fresh = nil
			r.mu.Unlock()
			for _, w := range fresh {
				g.Go(func() error { r.watch(ctx, w); return nil })
			}
		case now := <-tick.C:
			r.forget(now)
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stopped, r.fresh = true, nil
			for _, w := range r.watchers {
				w.endLocked()
			}
			return nil
		}
	}
}

// watch asks once.
func (r *Router) watch(ctx context.Context, w *watcher) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+callLimit)
	defer cancel()
	r.mu.Lock()
	w.cancel = cancel
	over := w.over
	slow := !over && r.waiting[w.at.leader] >= mostWatchers
	if !over && !slow {
		r.waiting[w.at.leader]++
	}
	r.mu.Unlock()
	switch {
	case slow:
		sleep.For(ctx, watchSlow)
	case !over:
		q := rpc.Read{Partition: w.ref, Offset: w.after, MaxBytes: watchBytes}
		res, err := w.peer.Read(ctx, q, watchTime)
		switch {
		case err == nil:
			r.learn(w.at, q, res)
		case fault.Is(err, fault.OffsetNotFound) && res.Bounds.HW < w.after: // ahead of the log
			_, err = w.peer.Bounds(ctx, w.ref, w.after, watchTime)
		}
		if err != nil {
			sleep.For(ctx, watchPause)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !over && !slow {
		if r.waiting[w.at.leader]--; r.waiting[w.at.leader] == 0 {
			delete(r.waiting, w.at.leader)
		}
	}
	w.endLocked()
	if r.watchers[w.watched] == w {
		delete(r.watchers, w.watched)
	}
}

// known is what was read last of a partition that another node leads.
type known struct {
	at      place
	from    ident.Offset
	next    ident.Offset // behind the batches
	result  rpc.ReadResult
	learned time.Time
}

// learn keeps what a leader gave from an offset on.
func (r *Router) learn(at place, q rpc.Read, res rpc.ReadResult) {
	k := &known{at: at, from: q.Offset, next: q.Offset, result: res, learned: time.Now()}
	for rest := res.Batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil {
			return // who reads it says so
		}
		k.next, rest = max(k.next, b.Header().Next()), more
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes := len(res.Batches)
	for _, other := range r.known {
		bytes += len(other.result.Batches)
	}
	if bytes > knownBytes {
		clear(r.known) // rare, and costs no more than reading again
	}
	r.known[q.Partition] = k
}

// recall answers from what was read last.
func (r *Router) recall(at place, q rpc.Read, tail bool) (rpc.ReadResult, bool) {
	r.mu.Lock()
	k := r.known[q.Partition]
	r.mu.Unlock()
	switch {
	case k == nil || k.at != at || time.Since(k.learned) > knownTime:
	case k.from == q.Offset && len(k.result.Batches) > 0:
		res := rpc.ReadResult{Batches: first(k.result.Batches, q.MaxBytes), Bounds: k.result.Bounds}
		return res, tail || !reachesEnd(res)
	case tail && k.next == q.Offset && k.next == k.result.Bounds.HW:
		return rpc.ReadResult{Bounds: k.result.Bounds}, true // Wait asks for what comes next
	}
	return rpc.ReadResult{}, false
}

// first is as many batches as so many bytes hold, but one at least.
func first(batches []byte, most int) []byte {
	n := 0
	for rest := batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil || n > 0 && n+len(b) > most {
			break
		}
		n, rest = n+len(b), more
	}
	return batches[:n:n]
}

// forget drops what is no longer given to anybody.
func (r *Router) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, k := range r.known {
		if now.Sub(k.learned) > knownTime {
			delete(r.known, ref)
		}
	}
}
