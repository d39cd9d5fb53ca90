package link

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

const (
	// pushBytes bounds what one partition adds to a message, pushedBytes a message.
	pushBytes   = 256 << 10
	pushedBytes = 1 << 20
	// lifeSign is how often a leader that has nothing to say sends an empty message.
	lifeSign = 250 * time.Millisecond
	// tellEvery is how often a leader that sent something not long ago looks for high
	// watermarks that no push has taken along.
	tellEvery = 5 * time.Millisecond
)

// downstream is the stream of one follower.
type downstream struct {
	links    *Links
	follower cluster.Life
	dirty    *dirty
	cancel   context.CancelFunc
	gone     chan struct{} // closed when its replicas know that it ended

	mu      sync.Mutex
	answers rpc.FromLeader // to standings; at most one a partition is under way
}

func (d *downstream) end() { d.cancel() }

// Serve carries a follower's stream until it ends.
func (l *Links) Serve(ctx context.Context, f rpc.Follow, s LeaderStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &downstream{links: l, follower: f.Follower, dirty: newDirty(), cancel: cancel, gone: make(chan struct{})}
	former, err := l.enter(d, f)
	if err != nil {
		return err
	}
	if former != nil { // what it said is over before what this one says begins
		former.end()
		<-former.gone
	}
	stop := context.AfterFunc(ctx, s.End)
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return d.send(ctx, s) })
	err = d.receive(s)
	cancel()
	_ = g.Wait() // it ends because of the receiver, or the other way round
	for _, r := range l.cfg.Node.Replicas() {
		r.Lost(d.follower)
	}
	close(d.gone)
	l.leave(d)
	return err
}

// enter makes a stream the follower's one, and gives the one that was.
func (l *Links) enter(d *downstream, f rpc.Follow) (former *downstream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _ := l.cfg.Node.Life(f.Follower.Node)
	switch {
	case l.stopped:
		return nil, fault.New(fault.Draining, "the broker is stopping")
	case f.Leader != l.life:
		return nil, fault.New(fault.Fenced, "the stream is for life %d of this broker, which has life %d", f.Leader.Epoch, l.life.Epoch)
	case f.Follower.Epoch < known.Epoch:
		return nil, fault.New(fault.Fenced, "the follower's life %d is over; it has life %d", f.Follower.Epoch, known.Epoch)
	}
	former = l.down[f.Follower.Node]
	if former != nil && former.follower.Epoch > f.Follower.Epoch {
		return nil, fault.New(fault.Fenced, "the follower's life %d is over; it has life %d", f.Follower.Epoch, former.follower.Epoch)
	}
	l.down[f.Follower.Node] = d
	return former, nil
}

func (l *Links) leave(d *downstream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down[d.follower.Node] == d {
		delete(l.down, d.follower.Node)
	}
}

func (d *downstream) receive(s LeaderStream) error {
	var m rpc.FromFollower
	for {
		if err := s.Recv(&m); err != nil {
			return err
		}
		for i := range m.Standings {
			d.standing(m.Standings[i])
		}
		for i := range m.Held {
			if r, err := d.links.cfg.Node.Replica(m.Held[i].Partition); err == nil {
				r.Held(d.follower, m.Held[i])
			}
		}
	}
}

// standing answers a follower. The lock is held from before both agree until the answer
// is in place: who finds a push to send finds the agreement it rests on too.
func (d *downstream) standing(s rpc.Standing) {
	d.mu.Lock()
	defer d.dirty.rouse()
	defer d.mu.Unlock()
	r, err := d.links.cfg.Node.Replica(s.Partition)
	if err != nil {
		d.answers.Refused = append(d.answers.Refused, rpc.Refused{Partition: s.Partition})
		return
	}
	answer, refused := r.Standing(d.follower, s)
	if refused != nil {
		d.answers.Refused = append(d.answers.Refused, *refused)
		return
	}
	d.answers.Divergences = append(d.answers.Divergences, answer)
}

// withAnswers adds what was answered to standings.
func (d *downstream) withAnswers(m *rpc.FromLeader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.Divergences = append(m.Divergences, d.answers.Divergences...)
	m.Refused = append(m.Refused, d.answers.Refused...)
	d.answers = rpc.FromLeader{}
}

func (d *downstream) send(ctx context.Context, s LeaderStream) error {
	defer d.cancel()
	tick := time.NewTicker(lifeSign)
	defer tick.Stop()
	const calm = int(lifeSign / tellEvery)
	var taken []ident.Partition
	for quiet := calm; ; { // ticks with nothing to send; from calm on they come as life signs
		ticked := false
		select {
		case <-d.dirty.wake:
		case <-tick.C:
			ticked = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		taken = d.dirty.take(taken)
		switch {
		case len(taken) > 0:
			if quiet >= calm {
				tick.Reset(tellEvery)
			}
			quiet = 0
		case ticked:
			if quiet++; quiet == calm {
				tick.Reset(lifeSign)
			}
		}
		if err := d.flush(s, taken, ticked && quiet >= calm); err != nil {
			return err
		}
	}
}

// flush sends what partitions have, in messages of bounded size. The answers are
// fetched after the pushes of the same message, and read before them: a push never
// overtakes the agreement it rests on. A partition that has more comes again after
// the others.
func (d *downstream) flush(s LeaderStream, partitions []ident.Partition, idle bool) error {
	sent := false
	for {
		var m rpc.FromLeader
		for bytes := 0; len(partitions) > 0 && bytes < pushedBytes; partitions = partitions[1:] {
			bytes += d.gather(&m, partitions[0])
		}
		d.withAnswers(&m)
		if len(m.Pushes)+len(m.Divergences)+len(m.Refused) > 0 || idle && !sent {
			if err := s.Send(&m); err != nil {
				return err
			}
			sent = true
		}
		if len(partitions) == 0 {
			return nil
		}
	}
}

// gather adds what a partition has to a message, and gives its size.
func (d *downstream) gather(m *rpc.FromLeader, p ident.Partition) int {
	r, err := d.links.cfg.Node.Replica(p)
	if err != nil {
		return 0
	}
	out, err := r.Push(d.follower.Node, pushBytes)
	if err != nil {
		d.links.cfg.Logger.Error("a follower cannot be sent what it lacks", "replica", r.String(), "follower", d.follower.Node, "err", err)
		return 0
	}
	if out.More {
		d.dirty.mark(p)
	}
	if out.Diverged != nil {
		m.Divergences = append(m.Divergences, *out.Diverged)
		return len(out.Diverged.Producers)
	}
	if out.Push == nil {
		return 0
	}
	m.Pushes = append(m.Pushes, *out.Push)
	return len(out.Push.Batches)
}
