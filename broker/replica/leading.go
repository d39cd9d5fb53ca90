package replica

import (
	"time"

	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Append takes a batch. done is called exactly once, perhaps before it returns.
func (r *Replica) Append(req rpc.Append, done func(rpc.Appended)) {
	if now := r.append(req, done); now != nil {
		done(*now)
	}
}

// append returns the answer where there is one already.
func (r *Replica) append(req rpc.Append, done func(rpc.Appended)) *rpc.Appended {
	r.mu.Lock()
	defer r.unlock()
	switch {
	case r.stopped != nil:
		return refused(r.stopped)
	case r.leader == nil:
		return refused(r.notLed())
	case req.Epoch != 0 && req.Epoch != r.view.Epoch:
		return refused(fault.New(fault.Fenced, "the sender knows leader epoch %d, the partition is at %d", req.Epoch, r.view.Epoch))
	}
	if err := req.Batch.VerifyBody(); err != nil {
		return refused(fault.New(fault.Internal, "a batch for partition %s: %w", r.ref, err))
	}
	if err := r.admitLocked(req); err != nil {
		if results, ok := r.machine.Repeats(req.Batch); ok && !fault.Lasting(err) {
			return r.joinLocked(req.Acks, results, done) // what is kept is kept, whatever is lacking now
		}
		return refused(err)
	}
	plan, err := r.machine.Append(req.Batch, rpc.Clock(r.cfg.Now()), r.rules)
	if err != nil {
		return refused(err)
	}
	if plan.Batch == nil {
		if r.doubtLocked(plan.Results) {
			return refused(r.doubtful())
		}
		return r.joinLocked(req.Acks, plan.Results, done)
	}
	plan.Batch.Assign(record.Place{Partition: r.ref, Epoch: r.view.Epoch, Base: plan.Base, Timestamp: plan.Timestamp})
	end := r.leader.End().After(plan.Batch.Header())
	if err := r.log.Append(plan.Batch, r.writtenUpTo(end), r.durableNow); err != nil {
		// The machine is ahead of the log now, and there is no way back.
		r.stopLocked(err, fault.New(fault.UnknownOutcome, "the log takes nothing more: %w", err))
		return refused(err)
	}
	r.leader.Appended(end)
	r.news.push = true
	r.waitLocked(req.Acks, answer{end, plan.Results, done})
	return nil
}

// admitLocked says why nothing new is taken at the moment.
func (r *Replica) admitLocked(req rpc.Append) error {
	if req.Acks == rpc.AcksAll && !r.leader.Enough() {
		return fault.New(fault.NotEnoughReplicas, "partition %d of topic %q has %d in-sync replicas and asks for %d (min_insync); nothing was kept",
			r.ref.Index, r.cfg.Topic, len(r.view.ISR), r.view.MinInsync).After(time.Second)
	}
	return r.log.Admit(len(req.Batch))
}

func refused(err error) *rpc.Appended { return &rpc.Appended{Err: err} }

// doubtLocked takes back what a leader of the past must not say of a batch that leaves
// nothing to append: that a producer is unknown, or has skipped a number. Another
// leader may have kept what is missing here while this node was paused or cut off, and
// the producer would be told that what was acknowledged is not there. Where something is
// appended its commit is the proof that this node leads; here only a lease is. True:
// nothing else is left to say of the batch.
func (r *Replica) doubtLocked(results []rpc.RecordResult) (all bool) {
	firm := false
	for i := range results {
		switch err := results[i].Err; {
		case (fault.Is(err, fault.OutOfOrderSequence) || fault.Is(err, fault.UnknownProducer)) && !r.cfg.Lease():
			results[i].Err, all = r.doubtful(), true
		case err == nil:
			firm = true // found again: that stands, whoever leads
		}
	}
	return all && !firm
}

func (r *Replica) doubtful() error {
	return fault.New(fault.LeaderUnavailable, "this node is not sure to lead partition %d of topic %q any more, and cannot say what came before the record; nothing was kept", r.ref.Index, r.cfg.Topic)
}

// joinLocked answers a batch that leaves nothing to append, once everything before it
// is kept as far as it asks for.
func (r *Replica) joinLocked(acks rpc.Acks, results []rpc.RecordResult, done func(rpc.Appended)) *rpc.Appended {
	end := r.leader.End()
	if !r.reachedLocked(acks).Before(end) {
		return &rpc.Appended{Records: results}
	}
	r.waitLocked(acks, answer{end, results, done})
	return nil
}

func (r *Replica) waitLocked(acks rpc.Acks, a answer) {
	if acks == rpc.AcksLeader {
		r.local.add(a)
	} else {
		r.all.add(a)
	}
}

// reachedLocked is how far the log is kept in the sense of acks. Without a lease this
// node may be a leader of the past: then its own disk alone promises nothing.
func (r *Replica) reachedLocked(acks rpc.Acks) record.Position {
	hw := r.leader.HW()
	switch {
	case acks != rpc.AcksLeader:
		return hw
	case hw.Before(r.disk) && !r.cfg.Lease():
		return hw
	}
	return r.disk
}

// settleLocked answers whoever has what it waits for, and lets readers and followers
// know of a new high watermark.
func (r *Replica) settleLocked() {
	if hw := r.leader.HW().Offset; hw > r.hw {
		r.hw = hw
		r.news.tell = true
		r.wakeLocked()
	} else if !r.serving && r.leader.Settled() {
		r.serving = true
		r.wakeLocked()
	}
	r.answerLocked(&r.all, r.leader.HW())
	if len(r.local.waiting) > 0 {
		r.answerLocked(&r.local, r.reachedLocked(rpc.AcksLeader))
	}
}

func (r *Replica) answerLocked(q *queue, to record.Position) {
	for a, ok := q.next(to); ok; a, ok = q.next(to) {
		r.news.outcomes = append(r.news.outcomes, outcome{a.done, rpc.Appended{Records: a.results}})
	}
}

// Standing answers a follower that says where its log ends. refused: this replica does
// not lead in that epoch, or cannot say yet what the follower is to have. Where it has yet to
// forget producers, the power may bring them back, and with them a log that is to be dropped.
func (r *Replica) Standing(from cluster.Life, s rpc.Standing) (d rpc.Divergence, refused *rpc.Refused) {
	r.mu.Lock()
	epoch, leads, hw := r.view.Epoch, r.leader != nil && r.leader.Firm() && !r.forgets, r.hw
	var end record.Position
	if leads {
		end = r.leader.End()
	}
	r.mu.Unlock()
	if !leads || s.Epoch != epoch {
		return d, &rpc.Refused{Partition: r.ref, Epoch: epoch}
	}
	d = replication.Compare(&s, r.log.StartPosition(), end, r.log)
	if !d.Agreed {
		if d = r.withProducers(d, hw); d.Start > 0 && d.ProducersAt == 0 && replication.BeginsAnew(&d) {
			return d, &rpc.Refused{Partition: r.ref, Epoch: epoch} // none is committed yet: it will be in a moment
		}
	}
	r.mu.Lock()
	defer r.unlock()
	if r.leader == nil || r.view.Epoch != epoch {
		return d, &rpc.Refused{Partition: r.ref, Epoch: r.view.Epoch}
	}
	if !d.Agreed {
		r.leader.Part(from, r.cfg.Now())
		return d, nil
	}
	if !r.leader.Agree(from, s.Version, s.End, s.Last) {
		return d, &rpc.Refused{Partition: r.ref, Epoch: epoch}
	}
	r.news.push = true
	return d, nil
}

// withProducers adds what a follower needs that begins at the log's start.
func (r *Replica) withProducers(d rpc.Divergence, hw ident.Offset) rpc.Divergence {
	if d.Start > 0 {
		if at, state, ok := r.log.ProducersUpTo(hw); ok && at >= d.Start {
			d.ProducersAt, d.Producers = at, state
		}
	}
	return d
}

// Pushed is what there is for a follower at a moment.
type Pushed struct {
	Push     *rpc.Push       // nil: nothing
	Diverged *rpc.Divergence // what it needs is no longer kept
	End      record.Position // of what the push brings
	More     bool            // there is more than this
}

// Push fetches what a follower lacks, about maxBytes of it.
func (r *Replica) Push(to ident.NodeID, maxBytes int) (Pushed, error) {
	r.mu.Lock()
	if r.leader == nil {
		r.mu.Unlock()
		return Pushed{}, nil
	}
	l, f, epoch := r.leader, r.leader.Follower(to), r.view.Epoch
	if f == nil || !f.Agreed || f.Next == l.End() && f.Told >= r.hw {
		r.mu.Unlock()
		return Pushed{}, nil
	}
	p := rpc.Push{Partition: r.ref, Epoch: epoch, Prev: f.Next, PrevEpoch: f.Last}
	life, end := f.Life, l.End()
	r.mu.Unlock()

	next, last := p.Prev, p.PrevEpoch
	if p.Prev.Before(end) {
		var err error
		if p.Batches, err = r.log.ReadFrom(p.Prev, maxBytes); err != nil {
			return r.unreadable(cluster.Life{Node: to, Epoch: life}, &p, err)
		}
		if next, last, err = behind(p.Batches, p.Prev); err != nil {
			return Pushed{}, err
		}
	}
	p.Start = r.log.Start()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != l {
		return Pushed{}, nil
	}
	if f = l.Follower(to); f == nil || !f.Agreed || f.Life != life || f.Next != p.Prev {
		return Pushed{More: true}, nil // it said something meanwhile
	}
	p.HW = r.hw
	f.Sent(next, last, p.HW)
	return Pushed{Push: &p, End: next, More: next.Before(l.End())}, nil
}

// unreadable says what becomes of a follower whose next batches cannot be read: where
// they are no longer kept it begins anew, with the producers as of what is committed.
func (r *Replica) unreadable(follower cluster.Life, p *rpc.Push, err error) (Pushed, error) {
	expired := fault.Is(err, fault.OffsetExpired)
	start := r.log.StartPosition()
	d := rpc.Divergence{Partition: r.ref, Epoch: p.Epoch, End: start, Start: start.Offset, Of: p.Prev, OfLast: p.PrevEpoch}
	r.mu.Lock()
	hw := r.hw
	r.mu.Unlock()
	if d = r.withProducers(d, hw); expired && d.Start > 0 && d.ProducersAt == 0 {
		return Pushed{}, nil // none is committed yet: the next high watermark brings it here again
	}
	damaged := fault.Lasting(err) && r.log.Damage() != nil
	r.mu.Lock()
	switch {
	case r.leader == nil || r.view.Epoch != p.Epoch:
	case damaged:
		r.leader.Harmed()
		r.leader.Spent(follower, p.Prev, r.cfg.Now())
	default:
		r.leader.Part(follower, r.cfg.Now())
	}
	r.mu.Unlock()
	if !expired {
		return Pushed{}, err
	}
	return Pushed{Diverged: &d}, nil
}

// behind finds where batches end that begin at a position, and the last one's epoch.
func behind(batches []byte, at record.Position) (record.Position, ident.Epoch, error) {
	var last ident.Epoch
	for len(batches) > 0 {
		b, rest, err := record.Cut(batches)
		if err != nil {
			return at, last, err
		}
		h := b.Header()
		at, last, batches = at.After(h), h.Epoch, rest
	}
	return at, last, nil
}

// Held takes in what a follower has on its disk.
func (r *Replica) Held(from cluster.Life, h rpc.Held) {
	r.mu.Lock()
	defer r.unlock()
	if r.leader == nil {
		return
	}
	if f := r.leader.Held(from, h.Epoch, h.Durable); f != nil {
		r.news.tell = r.news.tell || h.Watched && !f.Watched && f.Told < r.hw
		f.Watched = h.Watched
	}
	r.settleLocked()
	r.proposeLocked()
}

// Lost takes in that the stream of a follower's life ended.
func (r *Replica) Lost(from cluster.Life) {
	r.mu.Lock()
	defer r.unlock()
	if r.leader == nil {
		return
	}
	r.leader.Lost(from, r.cfg.Now())
	r.proposeLocked()
}

// proposeLocked announces that the ISR should be another.
func (r *Replica) proposeLocked() {
	now := r.cfg.Now()
	if r.log.Damage() != nil {
		r.leader.Harmed()
	}
	if _, open := r.leader.Propose(now, r.cfg.Alive); open || r.leader.Again(now) {
		r.news.propose = true
	}
}

// Successor is who could lead in the place of this replica, whose log is damaged, and the
// version that this rests on: for whoever asks the coordinator, where nobody else is in
// sync and the topic puts serving above keeping. ok is false where there is nobody.
func (r *Replica) Successor() (version uint64, who cluster.Life, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil {
		return 0, who, false
	}
	who, ok = r.leader.Successor(r.cfg.Now(), r.cfg.Alive)
	return r.leader.View().Version, who, ok
}

// Proposal is what the ISR should be: for whoever brings it to the coordinator. ok is
// false where nothing is open.
func (r *Replica) Proposal() (epoch ident.Epoch, version uint64, isr []cluster.Life, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil {
		return 0, 0, nil, false
	}
	isr, ok = r.leader.Open()
	if !ok {
		return 0, 0, nil, false
	}
	v := r.leader.View()
	return v.Epoch, v.Version, isr, true
}

// Declined says that a proposal under an epoch and version was certainly not taken.
// One whose outcome is unknown stays open until a newer view settles it.
func (r *Replica) Declined(epoch ident.Epoch, version uint64) {
	r.mu.Lock()
	defer r.unlock()
	if r.leader != nil && r.view.Epoch == epoch && r.leader.View().Version == version {
		r.leader.Declined(r.cfg.Now())
		r.settleLocked()
	}
}

// Unanswered says that nobody knows what became of a proposal under an epoch and
// version: it may be taken later than another one is refused.
func (r *Replica) Unanswered(epoch ident.Epoch, version uint64) {
	r.mu.Lock()
	defer r.unlock()
	if r.leader != nil && r.view.Epoch == epoch && r.leader.View().Version == version {
		r.leader.Unanswered()
	}
}
