package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/replica"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	// cutsAtOnce bounds the logs of one stream that are cut at a time.
	cutsAtOnce = 16
	// messageParts bounds what a follower says in one message.
	messageParts = 4096
	// reportLimit bounds how long the coordinator is tried with one suspicion.
	reportLimit = 2 * time.Second
)

// upstream is the stream to one leader.
type upstream struct {
	links  *Links
	leader ident.NodeID
	dirty  *dirty
	heard  atomic.Int64 // when something came last, ns since 1970

	// sending is held by who gathers and says: what was fetched leaves in that order.
	sending sync.Mutex
	taken   []ident.Partition
	line    FollowerStream // nil: none
	broken  error          // of a message that send did not send

	reporting atomic.Bool
	reports   sync.WaitGroup

	started atomic.Bool
	done    chan struct{} // closed by end
	ended   atomic.Bool
	anew    chan struct{} // room for one: end the stream in hand
}

func newUpstream(l *Links, leader ident.NodeID) *upstream {
	return &upstream{links: l, leader: leader, dirty: newDirty(), done: make(chan struct{}), anew: make(chan struct{}, 1)}
}

func (u *upstream) start() bool { return !u.started.Swap(true) }

func (u *upstream) end() {
	if !u.ended.Swap(true) {
		close(u.done)
	}
}

func (u *upstream) again() {
	select {
	case u.anew <- struct{}{}:
	default:
	}
}

// run opens the stream again and again until nothing is followed there any more.
func (u *upstream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, u.end)
	defer stop()
	defer u.reports.Wait()
	defer cancel() // before: the reports end with it
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := u.links.cfg.Now()
		err := u.stream(ctx)
		if u.links.cfg.Now().Sub(began) > time.Second {
			pause = firstPause
		}
		u.links.cfg.Logger.Debug("a replication stream ended", "leader", u.leader, "err", err)
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-u.anew:
			t.Stop()
		case <-u.done:
			t.Stop()
			return
		}
	}
}

var errNotYet = errors.New("this node or the leader has no life yet")

// stream is one stream, from its opening to its end.
func (u *upstream) stream(ctx context.Context) error {
	self := u.links.Self()
	leader, known := u.links.cfg.Node.Life(u.leader)
	if !known || self == (cluster.Life{}) {
		return errNotYet
	}
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := u.links.cfg.Network.Follow(ctx, rpc.Follow{Follower: self, Leader: leader})
	if err != nil {
		u.report(ctx, leader)
		return err
	}
	u.hear()
	for _, r := range u.links.cfg.Node.Followed(u.leader) {
		r.Opened(u.leader)
	}
	u.use(s)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return u.receive(s) })
	g.Go(func() error { defer cancel(); return u.send(ctx) })
	err = g.Wait()
	u.use(nil)
	for _, r := range u.links.cfg.Node.Followed(u.leader) {
		r.Closed(u.leader)
	}
	if !u.ended.Load() && !fault.Is(err, fault.Fenced) && !errors.Is(err, errAgain) {
		u.report(parent, leader)
	}
	return err
}

// report tells the coordinator that the leader may be dead, beside what else there is
// to do, and once at a time.
func (u *upstream) report(ctx context.Context, leader cluster.Life) {
	if u.reporting.Swap(true) {
		return
	}
	u.reports.Go(func() {
		defer u.reporting.Store(false)
		ctx, cancel := context.WithTimeout(ctx, reportLimit)
		defer cancel()
		if err := u.links.cfg.Coordinator.Report(ctx, cluster.Suspicion{From: u.links.Self().Node, Life: leader}); err != nil {
			u.links.cfg.Logger.Debug("the coordinator did not hear of a stream that ended", "leader", u.leader, "err", err)
		}
	})
}

func (u *upstream) hear() time.Time {
	now := u.links.cfg.Now()
	u.heard.Store(now.UnixNano())
	return now
}

var errAgain = errors.New("this broker has begun a new life")

// use makes a stream the one that is sent over.
func (u *upstream) use(s FollowerStream) {
	u.sending.Lock()
	defer u.sending.Unlock()
	u.line, u.broken = s, nil
	u.links.unsaid.forget(u)
}

// say says what there is: of a commit of the journal once all is told that came of it.
// Otherwise at once where no more of what was pushed is on its way to the disk, and where
// there is more send gathers.
func (u *upstream) say() {
	if !u.links.cfg.Journal.Telling() && !u.sayNow(true) {
		u.dirty.rouse()
	}
}

// sweep says what came of a commit, on the journal's goroutine.
func (u *upstream) sweep() {
	if u.dirty.pressing() && !u.sayNow(false) {
		u.dirty.rouse()
	}
}

func (u *upstream) sayNow(alone bool) bool {
	if alone && u.links.unsaid.count() > 1 || !u.sending.TryLock() {
		return false
	}
	defer u.sending.Unlock()
	if u.line == nil || u.broken != nil || !u.line.Ready() {
		return false
	}
	u.taken = u.dirty.take(u.taken)
	rest, err := u.message(u.taken, u.line.Post)
	for _, p := range rest {
		u.dirty.mark(p)
	}
	u.broken = err
	return err == nil
}

func (u *upstream) send(ctx context.Context) error {
	for {
		select {
		case <-u.dirty.wake:
		case <-u.anew:
			return errAgain
		case <-u.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := u.flush(); err != nil {
			return err
		}
	}
}

func (u *upstream) flush() error {
	u.sending.Lock()
	defer u.sending.Unlock()
	if u.broken != nil {
		return u.broken
	}
	u.taken = u.dirty.take(u.taken)
	for rest := u.taken; len(rest) > 0; {
		var err error
		if rest, err = u.message(rest, u.line.Send); err != nil {
			return err
		}
	}
	return nil
}

// message says what some partitions have, and gives those that are left: of no more than
// one message.
func (u *upstream) message(partitions []ident.Partition, send func(*rpc.FromFollower) error) (rest []ident.Partition, err error) {
	n := min(len(partitions), messageParts)
	if m := u.gather(partitions[:n]); len(m.Standings)+len(m.Held) > 0 {
		err = send(&m)
	}
	return partitions[n:], err
}

func (u *upstream) gather(partitions []ident.Partition) (m rpc.FromFollower) {
	for _, p := range partitions {
		r, err := u.links.cfg.Node.Replica(p)
		if err != nil {
			continue // it was taken from this node
		}
		standing, held := r.Say(u.leader)
		if standing != nil {
			m.Standings = append(m.Standings, *standing)
		}
		if held != nil {
			u.links.unsaid.said(p)
			m.Held = append(m.Held, *held)
		}
	}
	return m
}

func (u *upstream) receive(s FollowerStream) error {
	var cuts errgroup.Group
	cuts.SetLimit(cutsAtOnce)
	var m rpc.FromLeader
	for {
		if err := s.Recv(&m); err != nil {
			return errors.Join(err, cuts.Wait())
		}
		now := u.hear()
		for i := range m.Refused {
			u.with(m.Refused[i].Partition, func(r *replica.Replica) { r.Refused(m.Refused[i]) })
		}
		for i := range m.Divergences {
			d := m.Divergences[i]
			if d.Agreed { // nothing to wait for, and pushes may follow in this very message
				u.with(d.Partition, func(r *replica.Replica) { u.diverged(r, d) })
				continue
			}
			cuts.Go(func() error { u.with(d.Partition, func(r *replica.Replica) { u.diverged(r, d) }); return nil })
		}
		for i := range m.Pushes {
			if len(m.Pushes[i].Batches) > 0 {
				u.links.unsaid.pushed(m.Pushes[i].Partition, u, now)
			}
		}
		for i := range m.Pushes {
			u.with(m.Pushes[i].Partition, func(r *replica.Replica) { r.Pushed(m.Pushes[i]) })
		}
	}
}

func (u *upstream) diverged(r *replica.Replica, d rpc.Divergence) {
	if err := r.Diverged(d); err != nil {
		u.links.cfg.Logger.Error("a replica could not be made what its leader has; it stands still", "replica", r.String(), "err", err)
	}
}

func (u *upstream) with(p ident.Partition, do func(*replica.Replica)) {
	if r, err := u.links.cfg.Node.Replica(p); err == nil {
		do(r)
	}
}
