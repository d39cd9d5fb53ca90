package link

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// pushBytes bounds what one partition adds to a message, pushedBytes a message.
	pushBytes   = 256 << 10
	pushedBytes = 1 << 20
	// lifeSign is how often a leader that has nothing to say sends an empty message, and
	// for how long at most a high watermark that nobody waits for waits for a push.
	lifeSign = 250 * time.Millisecond
)

// downstream is the stream of one follower.
type downstream struct {
	links    *Links
	follower cluster.Life
	dirty    *dirty
	cancel   context.CancelFunc
	gone     chan struct{} // closed when its replicas know that it ended

	// sending is held by who gathers and sends: what was fetched leaves in that order.
	sending sync.Mutex
	stream  LeaderStream // nil: what the former stream said is not over yet, or this one's is
	taken   []ident.Partition
	sent    bool  // since the last tick
	more    bool  // than send has taken of a partition: it may have to be read from the disk
	broken  error // of a message that send did not send

	mu      sync.Mutex
	answers rpc.FromLeader // to standings; at most one a partition is under way
	unheld  mark           // of what was pushed last
}

// mark is a place in a partition's log; a zero one is none.
type mark struct {
	partition ident.Partition
	at        record.Position
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
	d.use(s)
	var g errgroup.Group
	g.Go(func() error { return d.send(ctx) })
	err = d.receive(s)
	cancel()
	_ = g.Wait() // it ends because of the receiver, or the other way round
	d.use(nil)
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

func (d *downstream) use(s LeaderStream) {
	d.sending.Lock()
	defer d.sending.Unlock()
	d.stream = s
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
				d.held(&m.Held[i])
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

// withAnswers adds what was answered to standings, and notes where the pushes end.
func (d *downstream) withAnswers(m *rpc.FromLeader, last mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withAnswersLocked(m, last)
}

func (d *downstream) withAnswersLocked(m *rpc.FromLeader, last mark) {
	if last != (mark{}) {
		d.unheld = last
	}
	m.Divergences = append(m.Divergences, d.answers.Divergences...)
	m.Refused = append(m.Refused, d.answers.Refused...)
	d.answers = rpc.FromLeader{}
}

// held notes what the follower has on its disk.
func (d *downstream) held(h *rpc.Held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unheld.partition == h.Partition && !h.Durable.Before(d.unheld.at) {
		d.unheld = mark{}
	}
}

// push sends what there is, at once where nothing else is under way. Otherwise there is
// load, and what comes meanwhile goes along: until the journal's next round, where one is
// sure to come, or until send has its turn.
func (d *downstream) push() {
	if d.links.cfg.Journal.Telling() {
		return
	}
	if !d.pushNow(true) && !d.links.cfg.Journal.Waiting() {
		d.dirty.rouse()
	}
}

// sweep sends what the journal's round has found, on its goroutine if that is little.
func (d *downstream) sweep(small bool) {
	if d.dirty.pressing() && !(small && d.pushNow(false)) {
		d.dirty.rouse()
	}
}

// pushNow sends without waiting; alone: only where nothing else is under way. What a
// follower that has just agreed needs may have to be read from the disk: that is for send.
func (d *downstream) pushNow(alone bool) bool {
	// Who answers a standing holds mu, for as long as that takes, and comes here with it.
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	if alone && (d.unheld != (mark{}) || d.links.unsaid.count() > 0) || len(d.answers.Divergences) > 0 || !d.sending.TryLock() {
		return false
	}
	defer d.sending.Unlock()
	if d.stream == nil || d.broken != nil || d.more || !d.stream.Ready() {
		return false
	}
	d.taken = d.dirty.take(d.taken)
	rest, err := d.message(d.taken, false, d.withAnswersLocked, d.stream.Post)
	for _, p := range rest {
		d.dirty.mark(p)
	}
	d.broken = err
	return err == nil
}

func (d *downstream) send(ctx context.Context) error {
	defer d.cancel()
	tick := time.NewTicker(lifeSign)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-d.dirty.wake:
		case <-tick.C:
			ticked = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := d.flush(ticked); err != nil {
			return err
		}
	}
}

// flush sends all that there is, in messages of bounded size. A partition that has more
// comes again after the others.
func (d *downstream) flush(ticked bool) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	if d.broken != nil {
		return d.broken
	}
	d.taken, d.more = d.dirty.take(d.taken), false
	idle := ticked && !d.sent
	for rest := d.taken; ; {
		var err error
		if rest, err = d.message(rest, idle, d.withAnswers, d.stream.Send); err != nil {
			return err
		}
		if idle = false; len(rest) == 0 {
			break
		}
	}
	if ticked {
		d.sent = false
	}
	return nil
}

// message sends what some partitions have, and gives those that are left: of no more
// than one message. The answers are fetched after the pushes of the same message, and
// read before them: a push never overtakes the agreement it rests on.
func (d *downstream) message(partitions []ident.Partition, idle bool, answers func(*rpc.FromLeader, mark), send func(*rpc.FromLeader) error) (rest []ident.Partition, err error) {
	var m rpc.FromLeader
	var last mark
	for bytes := 0; len(partitions) > 0 && bytes < pushedBytes; partitions = partitions[1:] {
		bytes += d.gather(&m, partitions[0], &last)
	}
	answers(&m, last)
	if len(m.Pushes)+len(m.Divergences)+len(m.Refused) > 0 || idle {
		d.sent = true
		err = send(&m)
	}
	return partitions, err
}

// gather adds what a partition has to a message, and gives its size. last is where the
// latest batches end.
func (d *downstream) gather(m *rpc.FromLeader, p ident.Partition, last *mark) int {
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
		d.more = true
		d.dirty.mark(p)
	}
	if out.Diverged != nil {
		m.Divergences = append(m.Divergences, *out.Diverged)
		return len(out.Diverged.Producers)
	}
	if out.Push == nil {
		return 0
	}
	if len(out.Push.Batches) > 0 {
		*last = mark{p, out.End}
	}
	m.Pushes = append(m.Pushes, *out.Push)
	return len(out.Push.Batches)
}
