package replica

import (
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// nothingTold is before everything that may be on a disk.
var nothingTold = record.Position{Offset: -1}

// askAgain is after how long without an answer a follower says again where it stands, and
// after how long without a push, if it is not in sync.
const askAgain = time.Second

// Opened says that a new stream to a leader has begun: what was said in the former one
// may not have arrived.
func (r *Replica) Opened(leader ident.NodeID) {
	r.mu.Lock()
	defer r.unlock()
	if r.follower == nil || r.follower.View().Leader != leader {
		return
	}
	r.partLocked()
	r.asked = time.Time{}
	r.news.say = true
}

// Closed says that the stream to a leader ended.
func (r *Replica) Closed(leader ident.NodeID) {
	r.mu.Lock()
	defer r.unlock()
	if r.follower != nil && r.follower.View().Leader == leader {
		r.partLocked()
	}
}

func (r *Replica) partLocked() {
	r.follower.Part()
	if r.serving {
		r.serving = false
		r.wakeLocked()
	}
}

func (r *Replica) ownLogLocked() replication.Log {
	end := r.log.EndPosition()
	ahead := end.Offset < r.machine.End() && r.begun < r.view.Unclean
	return replication.Log{Start: r.log.StartPosition(), End: end, Last: r.log.LastEpoch(), HW: r.hw, Ahead: ahead}
}

// Say fetches what the leader is to hear: where the log ends, or what is on the disk.
func (r *Replica) Say(to ident.NodeID) (s *rpc.Standing, h *rpc.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.follower == nil || r.follower.View().Leader != to || r.cutting || r.halted != nil {
		return nil, nil
	}
	if r.log.Damage() != nil {
		return nil, nil // nobody is to count on what is here
	}
	epoch := r.view.Epoch
	if !r.follower.Agreed() {
		if now := r.cfg.Now(); r.asked.IsZero() || now.Sub(r.asked) >= askAgain {
			own := r.ownLogLocked()
			r.asked = now
			return &rpc.Standing{Partition: r.ref, Epoch: epoch, End: own.End, Last: own.Last, Version: r.view.Version}, nil
		}
		return nil, nil
	}
	watch := r.moved != nil || r.cfg.Now().Sub(r.watched) < watchedFor
	if !r.told.Before(r.own) && (r.watch || !watch) {
		return nil, nil // that nobody waits any more can wait
	}
	r.told, r.watch = r.own, watch
	return nil, &rpc.Held{Partition: r.ref, Epoch: epoch, Durable: r.own, Watched: watch}
}

// watchedFor is how long a replica counts as watched after somebody waited: readers
// come back once they have read.
const watchedFor = time.Second

// Diverged takes in the leader's answer to where the log ends. It returns once that is
// done, which takes the disk's time where the log has to be cut. An error says that the
// disk failed.
func (r *Replica) Diverged(d rpc.Divergence) error {
	r.mu.Lock()
	if r.follower == nil || r.cutting || r.halted != nil || r.stopped != nil {
		r.mu.Unlock()
		return nil
	}
	turn := r.follower.Answer(&d, r.ownLogLocked(), r.log)
	switch turn.Step {
	case replication.Go:
		r.fed = r.cfg.Now()
		r.told = nothingTold // even if nothing is on the disk, the leader is to hear that
		r.news.say = true
	case replication.Halt:
		r.halted = turn.Why
		r.cfg.Logger.Error("a replica stops: its leader's log contradicts what is committed. Nothing of it is changed; compare the replicas before anything else",
			"topic", r.cfg.Topic, "partition", r.ref.Index, "epoch", d.Epoch, "err", turn.Why)
	case replication.Cut, replication.Anew, replication.Empty:
		r.cutting = true
		r.cuts++
		rules := r.rules
		r.unlock()
		return r.cut(turn, d, rules)
	}
	r.unlock()
	return nil
}

// cut makes the log shorter, with nobody else changing it, and the machine what the
// log says then.
func (r *Replica) cut(turn replication.Turn, d rpc.Divergence, rules partition.Rules) error {
	var err error
	switch turn.Step {
	case replication.Anew:
		r.cfg.Logger.Info("a replica lies behind all that its leader keeps; it begins anew", "topic", r.cfg.Topic, "partition", r.ref.Index, "offset", d.Start)
		err = r.log.Restart(turn.To, d.Producers, max(d.Start, d.ProducersAt))
	case replication.Empty:
		r.cfg.Logger.Warn("a replica drops all it has: an unclean election has undone what it begins with", "topic", r.cfg.Topic, "partition", r.ref.Index, "epoch", d.Epoch)
		err = r.log.Restart(turn.To, nil, turn.To.Offset)
	default:
		err = r.log.TruncateTo(turn.To)
	}
	var machine *partition.Machine
	if err == nil {
		machine, err = r.cfg.Rebuild(rules)
	}
	r.mu.Lock()
	if err == nil {
		r.disk = r.log.DurablePosition()
		r.own = r.disk
		if turn.Step == replication.Anew {
			r.begun = d.Epoch
		}
		if turn.Step != replication.Cut || turn.To.Offset < r.hw { // lower only after an unclean election
			r.hw = turn.To.Offset
		}
		r.asked = time.Time{}
		r.news.say = true
	}
	r.remade(machine, err)
	return err
}

// Refused takes in that the other end does not lead in an epoch (yet).
func (r *Replica) Refused(f rpc.Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.follower != nil && f.Epoch <= r.view.Epoch {
		r.follower.Part()
		r.asked = r.cfg.Now().Add(-askAgain + refusedPause) // it may not have heard what this node has
	}
}

// refusedPause is after how long a follower asks a leader again that does not know yet
// that it leads.
const refusedPause = 20 * time.Millisecond

// Pushed takes a leader's batches into the log.
func (r *Replica) Pushed(p rpc.Push) {
	r.mu.Lock()
	defer r.unlock()
	if r.follower == nil || r.cutting || r.halted != nil || r.stopped != nil {
		return
	}
	switch r.follower.Push(&p, r.ownLogLocked()) {
	case replication.Stale:
		return
	case replication.Astray:
		r.asked = time.Time{}
		r.news.say = true
		return
	case replication.Next:
	}
	if err := r.takeLocked(&p); err != nil {
		// Not in this log, so not agreed on: the leader hears where it ends after a while.
		if !r.refuses {
			r.refuses = true // that a full disk stays full is no news
			r.cfg.Logger.Warn("a follower cannot take what its leader sends; it tries again", "topic", r.cfg.Topic, "partition", r.ref.Index, "err", err)
		}
		r.partLocked()
		r.asked = r.cfg.Now()
		return
	}
	r.fed = r.cfg.Now()
	r.refuses = r.refuses && len(p.Batches) == 0
	end := r.log.EndPosition().Offset
	if hw := r.follower.HW(r.hw, p.HW, end); hw > r.hw {
		r.hw = hw
		r.wakeLocked()
	}
	if !r.serving && r.servesLocked() {
		r.serving = true
		r.wakeLocked()
	}
}

// takeLocked appends a push, batch by batch, and folds it into the machine, so that
// this replica can lead at any moment.
func (r *Replica) takeLocked(p *rpc.Push) error {
	if len(p.Batches) > 0 {
		if err := r.log.Admit(len(p.Batches)); err != nil {
			return err
		}
	}
	at, last := p.Prev, p.PrevEpoch
	for rest := p.Batches; len(rest) > 0; {
		var b record.Batch
		var err error
		if b, rest, err = record.Cut(rest); err != nil {
			return err
		}
		if err := r.fits(b, at, last, p.Epoch); err != nil {
			return err
		}
		h := b.Header()
		at, last = at.After(h), h.Epoch
		if err := r.log.Append(b, r.writtenUpTo(at), r.durableNow); err != nil {
			return err
		}
		if err := r.machine.Fold(b, r.rules); err != nil {
			return err
		}
	}
	return nil
}

// fits checks that a batch is whole and the next one.
func (r *Replica) fits(b record.Batch, at record.Position, last, epoch ident.Epoch) error {
	if err := b.Verify(); err != nil {
		return err
	}
	h := b.Header()
	if h.Partition != r.ref || h.Base != at.Offset || h.Epoch < last || h.Epoch > epoch {
		return errMisplaced
	}
	return nil
}
