package coordinator

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/coordinator/balance"
	"tidewire/coordinator/liveness"
	"tidewire/coordinator/session"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// rule is the work of a leading coordinator: who lives, who leads what, who votes.
// The machines that decide belong to one goroutine, run; everything that waits
// (proofs, probes, changes) is done beside it and comes back as an event.
type rule struct {
	of      *Coordinator
	lives   *liveness.Machine // nil: nobody can be probed, and every life that was activated lives on
	planner *balance.Planner  // nil: likewise, nothing is planned
	// sessions of groups' members; nil until the rule runs.
	sessions *session.Machine

	done     chan struct{} // closed when the rule is over
	renewals chan *renewal // waiting for a proof
	proven   chan []*renewal
	doubts   chan cluster.Suspicion
	probed   chan probed
	touches  chan *touch
	changes  chan []cluster.Change // to be made, one after the other
	expiries chan []cluster.Life   // likewise, before them
	lapses   chan []cluster.MemberLife
	proofs   chan struct{} // a proof for lives is wanted
	proved   chan bool     // and came, or did not
	idle     chan struct{} // holds a token when changes were made
	expired  chan struct{} // likewise for expiries
	lapsed   chan struct{} // likewise for lapses
	members  atomic.Int64  // that the sessions know
	doubted  atomic.Pointer[[]ident.NodeID]

	changing  bool
	proving   bool
	expiring  bool
	lapsing   bool
	dying     []cluster.Life // to be declared over next
	planned   time.Time
	plannedAt uint64 // the index of what it was made on
}

const (
	// tickEvery is how often the machines are told the time, if nothing happens.
	tickEvery = 50 * time.Millisecond
	// planEvery is how often what is led and held is looked at, planIdle where nothing
	// has changed since but the time.
	planEvery = 200 * time.Millisecond
	planIdle  = time.Second
	// tidyEvery is how often the coordinators themselves are.
	tidyEvery = time.Second
	// probeLimit is how long a node may take to answer a probe.
	probeLimit = 500 * time.Millisecond
	// proofLimit bounds a proof: a leader that cannot give one in time steps down.
	proofLimit = time.Second
	// maxWaiting bounds renewals, doubts and calls with signs of life that wait to be
	// looked at.
	maxWaiting = 1024
)

type renewal struct {
	cluster.Renewal
	granted chan bool // holds the answer
}

type probed struct {
	life    cluster.Life
	outcome liveness.Outcome
}

func newRule(c *Coordinator) *rule {
	r := &rule{
		of: c, done: make(chan struct{}),
		renewals: make(chan *renewal, maxWaiting), proven: make(chan []*renewal), doubts: make(chan cluster.Suspicion, maxWaiting),
		probed: make(chan probed), changes: make(chan []cluster.Change, 1), expiries: make(chan []cluster.Life, 1),
		proofs: make(chan struct{}, 1), proved: make(chan bool, 1), idle: make(chan struct{}, 1), expired: make(chan struct{}, 1),
		touches: make(chan *touch, maxWaiting), lapses: make(chan []cluster.MemberLife, 1), lapsed: make(chan struct{}, 1),
	}
	if c.cfg.Probe != nil {
		r.lives = liveness.New(liveness.Config{Lease: c.cfg.Lease, ProbeWait: probeLimit, Every: tickEvery})
		r.planner = balance.New(c.cfg.Balance)
	}
	return r
}

// run rules until ctx ends.
func (r *rule) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	defer close(r.done)
	work.Go(func() { r.prove(ctx) })
	work.Go(func() { r.expire(ctx) })
	work.Go(func() { r.lapse(ctx) })
	work.Go(func() { r.change(ctx) })
	work.Go(func() { r.confirm(ctx) })
	work.Go(func() { r.tidy(ctx) })
	r.sessions = session.New(session.Config{Every: 2 * tickEvery}, time.Now(), r.of.feed.Snapshot())
	if r.lives != nil {
		r.lives.Led(time.Now(), r.of.feed.Snapshot())
		r.look(ctx, &work)
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case batch := <-r.proven:
			r.grant(batch)
			continue
		case t := <-r.touches:
			r.touched(t)
			continue
		case s := <-r.doubts:
			if r.lives != nil {
				now := time.Now()
				r.lives.Observe(now, r.of.feed.Snapshot()) // the life may be newer than its last look
				r.lives.Suspected(s, now)
			}
		case p := <-r.probed:
			r.lives.Probed(p.life, p.outcome, time.Now())
		case ok := <-r.proved:
			if r.proving = false; ok {
				r.lives.Proved(time.Now())
			}
		case <-r.idle:
			r.changing = false
			continue
		case <-r.expired:
			r.expiring = false
		case <-r.lapsed:
			r.lapsing = false
		case <-tick.C:
		}
		r.look(ctx, &work)
	}
}

// look lets the machines decide. Renewals that are proven, and signs of life, count
// before anything is judged by its silence.
func (r *rule) look(ctx context.Context, work *sync.WaitGroup) {
	for more := true; more; {
		select {
		case batch := <-r.proven:
			r.grant(batch)
		case t := <-r.touches:
			r.touched(t)
		default:
			more = false
		}
	}
	now, s := time.Now(), r.of.feed.Snapshot()
	if r.lives != nil {
		r.judge(ctx, work, r.lives.Tick(now, s), s)
	}
	r.endSessions(now, s)
	every := planEvery
	if s.Index == r.plannedAt {
		every = planIdle
	}
	if r.planner == nil || r.changing {
		return
	}
	if due := r.planner.Due(); now.Sub(r.planned) < every && (due.IsZero() || now.Before(due)) {
		return
	}
	r.planned, r.plannedAt = now, s.Index
	if changes := r.planner.Plan(now, s, r.lives.Live); len(changes) > 0 {
		r.changing = true
		r.changes <- changes // there is room: the one before has been made
	}
}

// judge does what the lives want.
func (r *rule) judge(ctx context.Context, work *sync.WaitGroup, do liveness.Actions, s *cluster.Snapshot) {
	for _, life := range do.Probe {
		if n := s.Nodes[life.Node]; n != nil { // one that has gone meanwhile is not watched any more
			work.Go(func() { r.probe(ctx, life, *n) })
		}
	}
	if do.Prove && !r.proving {
		r.proving = true
		r.proofs <- struct{}{} // there is room: the one before has come
	}
	if len(do.Expire) > 0 {
		r.dying = append(r.dying, do.Expire...)
	}
	if len(r.dying) > 0 && !r.expiring {
		r.expiring = true
		r.expiries <- r.dying // there is room: the one before is done
		r.dying = nil
	}
	doubted := r.suspects()
	var now []ident.NodeID
	for id := range s.Nodes {
		if r.lives.Suspect(id) {
			now = append(now, id)
		}
	}
	slices.SortFunc(now, func(a, b ident.NodeID) int { return bytes.Compare(a[:], b[:]) })
	if !slices.Equal(now, doubted) {
		r.doubted.Store(&now)
	}
}

func (r *rule) suspects() []ident.NodeID {
	if d := r.doubted.Load(); d != nil {
		return *d
	}
	return nil
}

func (r *rule) grant(batch []*renewal) {
	now, s := time.Now(), r.of.feed.Snapshot()
	if r.lives != nil {
		r.lives.Observe(now, s) // a life may renew before anything else has happened to it
	}
	for _, one := range batch {
		ok := false
		if r.lives != nil {
			ok = r.lives.Renewed(one.Life, now)
			if ok && one.Full {
				r.planner.Full(one.Life.Node, now)
			}
		} else if n := s.Nodes[one.Life.Node]; n != nil {
			ok = n.Life() == one.Life && n.Serves()
		}
		one.granted <- ok
	}
}

// prove collects renewals and proves leadership for all that came before the proof.
func (r *rule) prove(ctx context.Context) {
	for {
		var batch []*renewal
		select {
		case one := <-r.renewals:
			batch = append(batch, one)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < maxWaiting; {
			select {
			case one := <-r.renewals:
				batch = append(batch, one)
			default:
				more = false
			}
		}
		limited, cancel := context.WithTimeout(ctx, proofLimit)
		err := r.of.node.Prove(limited)
		cancel()
		if err != nil {
			continue // who waits asks again, here or at whoever leads
		}
		select {
		case r.proven <- batch:
		case <-ctx.Done():
			return
		}
	}
}

// renew says whether a life gets a lease.
func (r *rule) renew(ctx context.Context, asked cluster.Renewal) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	one := &renewal{Renewal: asked, granted: make(chan bool, 1)}
	select {
	case r.renewals <- one:
	case <-r.done:
		return false, interrupted()
	case <-ctx.Done():
		return false, fault.New(fault.CoordinatorUnavailable, "too many renewals wait: %w", context.Cause(ctx)).After(tickEvery)
	}
	select {
	case granted := <-one.granted:
		return granted, nil
	case <-r.done:
		return false, interrupted()
	case <-ctx.Done():
		return false, fault.New(fault.CoordinatorUnavailable, "this coordinator cannot prove that it leads: %w", context.Cause(ctx)).After(tickEvery)
	}
}

func (r *rule) suspect(ctx context.Context, s cluster.Suspicion) error {
	select {
	case r.doubts <- s:
		return nil
	case <-r.done:
		return interrupted()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *rule) probe(ctx context.Context, life cluster.Life, n cluster.Node) {
	limited, cancel := context.WithTimeout(ctx, probeLimit)
	outcome := liveness.Silent
	switch r.of.cfg.Probe(limited, n) {
	case cluster.Answered:
		outcome = liveness.Answered
	case cluster.Refused:
		outcome = liveness.Refused
	}
	cancel()
	select {
	case r.probed <- probed{life, outcome}:
	case <-ctx.Done():
	}
}

// confirm proves leadership where the lives want it.
func (r *rule) confirm(ctx context.Context) {
	for {
		select {
		case <-r.proofs:
			limited, cancel := context.WithTimeout(ctx, proofLimit)
			err := r.of.node.Prove(limited)
			cancel()
			r.proved <- err == nil // there is room: run takes one before it wants another
		case <-ctx.Done():
			return
		}
	}
}

// expire declares lives over.
func (r *rule) expire(ctx context.Context) {
	for {
		select {
		case all := <-r.expiries:
			r.of.cfg.Logger.Info("lives are declared over", "lives", all)
			for part := range slices.Chunk(all, cluster.MaxNodes) {
				r.make(ctx, cluster.Change{Expire: &cluster.Expire{Lives: part}})
			}
			r.expired <- struct{}{} // there is room: run takes one before it sends another
		case <-ctx.Done():
			return
		}
	}
}

// change makes the changes that the planner wants. Its next plan is made on what they
// have left.
func (r *rule) change(ctx context.Context) {
	for {
		select {
		case all := <-r.changes:
			for _, c := range all {
				r.make(ctx, c)
			}
			r.idle <- struct{}{} // there is room, as above
		case <-ctx.Done():
			return
		}
	}
}

// make makes one change, while this coordinator leads. What fails is decided again on what there is then.
func (r *rule) make(ctx context.Context, c cluster.Change) {
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	before := r.of.feed.Snapshot()
	answer, err := r.of.decree(ctx, c)
	switch {
	case err == nil && c.Elect != nil:
		logTakeovers(r.of.cfg.Logger, before, c.Elect, answer.Taken)
	case err != nil && ctx.Err() == nil:
		r.of.cfg.Logger.Warn("a change that this coordinator wants was not made", "change", c.Kind(), "err", err)
	}
}
