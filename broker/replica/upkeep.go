package replica

import (
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// TickEvery is how often a replica wants to be told that time passes.
const TickEvery = 100 * time.Millisecond

// Tick lets time pass: at a leader, replicas that lag leave the ISR; at a follower, a
// leader that did not answer is asked again, and readers go to it when it is silent.
func (r *Replica) Tick() {
	if r.quiet.Load() {
		return
	}
	r.mu.Lock()
	defer func() { r.unlockAs(r.quietLocked()) }()
	switch {
	case r.stopped != nil:
	case r.leader != nil:
		r.leader.Tick(r.cfg.Now())
		r.proposeLocked()
		r.settleLocked()   // the lease may have come back
		r.news.push = true // what could not be sent a moment ago, for want of a producer state, may be now
	case r.follower != nil:
		if r.forgottenLocked() {
			r.partLocked()
			r.asked = time.Time{}
		}
		if !r.follower.Agreed() {
			r.news.say = true
		}
		if r.serving && !r.servesLocked() {
			r.serving = false
			r.wakeLocked()
		}
	}
}

// forgottenLocked says that the leader may not know (any more) that both agreed: it has
// nothing for a follower that is not in sync. A replica that was moved away and back may
// not have heard of that, while its leader did.
func (r *Replica) forgottenLocked() bool {
	return r.follower.Agreed() && !r.follower.View().InSync(r.cfg.Self) && !r.cutting && r.cfg.Now().Sub(r.fed) >= askAgain
}

// quietLocked says that nothing will come of time passing before something else happens.
func (r *Replica) quietLocked() bool {
	switch {
	case r.stopped != nil:
		return true
	case r.leader != nil:
		return r.leader.Quiet() && len(r.local.waiting) == 0
	case r.follower != nil:
		// Nobody waits who would have to be told of a silent leader.
		return r.follower.Agreed() && r.follower.View().InSync(r.cfg.Self) && r.moved == nil
	}
	return false
}

// Load is what the node reports of the partition.
func (r *Replica) Load() rpc.PartitionLoad {
	damage, bytes := r.log.Damage(), r.log.Bytes()
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.boundsLocked() // a stopped replica still has its bounds
	l := rpc.PartitionLoad{Partition: r.ref, Bounds: b, Bytes: bytes, Serves: err == nil, Damaged: r.halted != nil || damage != nil}
	if r.leader != nil {
		l.Leads = true
		l.Missing = len(r.view.Replicas) - len(r.view.ISR)
		l.Lag = r.leader.Lag()
	}
	return l
}

// Committed is the end of what this replica knows to be committed. At a leader that tells
// the voids that stand at its offset, which take none.
func (r *Replica) Committed() record.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil {
		return r.leader.HW()
	}
	return record.At(r.hw)
}

// WaitsFor is whom a leader waits for before it takes anything for committed, itself too;
// nobody, where it does not lead.
func (r *Replica) WaitsFor() []ident.NodeID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil {
		return nil
	}
	return r.leader.Members()
}

// Retain drops what the topic's retention no longer wants. The leader decides; a
// follower's log begins where its leader's does. What was purged goes at either: the
// coordinator decided that.
func (r *Replica) Retain(now time.Time) error {
	r.mu.Lock()
	hw, leads := record.At(r.hw), r.leader != nil
	if leads {
		hw = r.leader.HW()
	}
	start := ident.Offset(-1)
	if r.follower != nil && r.follower.Agreed() && !r.cutting {
		start = min(r.follower.LeaderStart(), r.hw)
	}
	floor := ident.Offset(-1)
	if leads || start >= 0 {
		floor = r.floorLocked()
	}
	stopped := r.stopped
	r.mu.Unlock()
	if stopped != nil {
		return nil
	}
	if floor > r.log.Start() {
		if err := r.log.Purge(floor, hw); err != nil {
			return err
		}
	}
	switch {
	case leads:
		return r.log.Retain(now, hw)
	case start > r.log.Start():
		return r.log.SetStart(start, hw.Offset)
	}
	return nil
}

// Snapshot is the producer state as of the log's end, for the log to keep; as of -1 while
// voids stand there that may be cut away yet. They take no offset, so later on nobody
// could tell whether a state as of that offset knows of them.
func (r *Replica) Snapshot() (ident.Offset, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.log.EndPosition()
	if end.Voids > 0 && end != r.log.StartPosition() && (r.leader == nil || r.leader.HW().Before(end)) {
		return -1, nil
	}
	return r.machine.End(), r.machine.Snapshot()
}
