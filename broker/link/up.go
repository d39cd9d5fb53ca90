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
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return u.receive(s) })
	g.Go(func() error { defer cancel(); return u.send(ctx, s) })
	err = g.Wait()
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

func (u *upstream) hear() { u.heard.Store(u.links.cfg.Now().UnixNano()) }

var errAgain = errors.New("this broker has begun a new life")

func (u *upstream) send(ctx context.Context, s FollowerStream) error {
	var taken []ident.Partition
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
		taken = u.dirty.take(taken)
		for rest := taken; len(rest) > 0; {
			n := min(len(rest), messageParts)
			m := u.gather(rest[:n])
			rest = rest[n:]
			if len(m.Standings)+len(m.Held) == 0 {
				continue
			}
			if err := s.Send(&m); err != nil {
				return err
			}
		}
	}
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
		u.hear()
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
