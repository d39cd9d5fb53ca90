package replication

import (
	"errors"
	"fmt"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// History is a log's record of leader epochs.
type History interface {
	// EpochEndPosition gives the largest epoch of the log that is not above e, and
	// where it ended; 0 where there is none so old.
	EpochEndPosition(e ident.Epoch) (ident.Epoch, record.Position)
}

// Follower is a partition's follower in one epoch. It is not safe for concurrent use.
type Follower struct {
	view   View
	agreed bool
	start  ident.Offset // the leader's log start, as far as it was told
}

// FollowView begins to follow what a view says.
func FollowView(v View) *Follower { return &Follower{view: v} }

// See takes in a later view of the same epoch.
func (f *Follower) See(v View) {
	if v.Newer(&f.view) {
		f.view = v
	}
}

// View is the newest that was seen.
func (f *Follower) View() *View { return &f.view }

// Agreed says whether this log is known to be a prefix of the leader's.
func (f *Follower) Agreed() bool { return f.agreed }

// LeaderStart is the leader's log start, as far as it was told.
func (f *Follower) LeaderStart() ident.Offset { return f.start }

// Part forgets what was agreed: the stream ended, or what came did not fit.
func (f *Follower) Part() { f.agreed = false }

// Log is how a follower's own log stands.
type Log struct {
	Start record.Position
	End   record.Position
	Last  ident.Epoch // of its last batch; 0: it has none
	HW    ident.Offset
	// Ahead: what is known of producers is as of a place behind End, and an unclean
	// election came after that was said. It may be of records that are lost.
	Ahead bool
}

// Step is what a follower does next.
type Step uint8

const (
	// Ignore: it was not for this epoch.
	Ignore Step = iota
	// Go: both agree; pushes follow.
	Go
	// Cut: truncate the log to Turn.To, and say where it stands then.
	Cut
	// Anew: drop everything and begin at the leader's log start.
	Anew
	// Empty: drop everything and begin at offset 0. An unclean election made somebody
	// lead whose log ends below where this one starts, or undid what it was begun with.
	Empty
	// Halt: what the leader says would undo what is committed. Nothing may be done
	// before somebody has looked at it.
	Halt
)

// Turn is a Step and where to.
type Turn struct {
	Step Step
	To   record.Position
	Why  error // of Halt
}

// ErrCommitted says that a leader's log lacks what this replica knows to be committed.
var ErrCommitted = errors.New("the leader's log parts from this one below the high watermark")

// Answer decides about a leader's answer to where this log stands.
func (f *Follower) Answer(d *rpc.Divergence, own Log, h History) Turn {
	if d.Epoch != f.view.Epoch || d.Of != own.End || d.OfLast != own.Last {
		return Turn{} // of an epoch that is over, or a second answer to what was true before a cut
	}
	if own.Ahead {
		f.agreed = false
		return Turn{Step: Empty}
	}
	f.start = max(f.start, d.Start)
	f.agreed = d.Agreed
	if d.Agreed {
		return Turn{Step: Go}
	}
	step := Cut
	// Where this log lacks that epoch, the leader is asked again from the end of the
	// next older one: its end of the epoch means nothing in a log that is another one
	// there.
	last, to := h.EpochEndPosition(d.Last)
	if last == d.Last {
		to = record.Least(to, d.End)
	}
	if BeginsAnew(d) { // nothing of this log can be compared, and nothing of it is kept there
		step, to = Anew, d.End
	}
	if f.undone(own.Last) && step == Cut && (to.Before(own.Start) || to == own.End) {
		return Turn{Step: Empty}
	}
	switch {
	case step == Cut && to == own.End:
		return Turn{Step: Halt, To: to, Why: fmt.Errorf("the leader of epoch %d does not know how this log can end at offset %d in epoch %d", d.Epoch, own.End.Offset, own.Last)}
	case to.Offset < own.HW && !f.undone(own.Last):
		return Turn{Step: Halt, To: to, Why: fmt.Errorf("%w: it would have to be cut at offset %d, and is committed up to %d", ErrCommitted, to.Offset, own.HW)}
	}
	return Turn{Step: step, To: to}
}

// undone says whether an unclean election came after an epoch: what was committed in
// it may be gone.
func (f *Follower) undone(last ident.Epoch) bool {
	return f.view.Unclean > last && f.view.Unclean <= f.view.Epoch
}

// Verdict is what becomes of a push.
type Verdict uint8

const (
	// Stale: of another epoch, or from before both agreed.
	Stale Verdict = iota
	// Next: it begins where the log ends.
	Next
	// Astray: it does not; the follower says anew where it stands.
	Astray
)

// Push decides about a push.
func (f *Follower) Push(p *rpc.Push, own Log) Verdict {
	switch {
	case p.Epoch != f.view.Epoch || !f.agreed:
		return Stale
	case p.Prev != own.End || p.PrevEpoch != own.Last:
		f.agreed = false
		return Astray
	}
	f.start = max(f.start, p.Start)
	return Next
}

// HW is what a follower may take for committed: what the leader says, as far as this
// log is known to be the leader's. Committed records stay so: it never goes back.
func (f *Follower) HW(now, told, end ident.Offset) ident.Offset {
	if !f.agreed {
		return now
	}
	return max(now, min(told, end))
}
