package replication

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Leader is a partition's leader in one epoch. It is not safe for concurrent use.
type Leader struct {
	self ident.NodeID
	lag  time.Duration
	view View

	wanted []cluster.Life // the ISR that was proposed; nil: nothing is open
	rest   time.Time      // no proposal before that
	// doubt: of what was proposed on this version something may be taken yet, whatever
	// becomes of the rest. refused: and something was not.
	doubt, refused bool
	harmed         bool      // its own log is damaged
	spent          time.Time // since when a follower has all that can be read there; zero: none has

	took    record.Position // where the log ended when this epoch began
	end     record.Position // of everything appended
	durable record.Position // of that, what is on this node's disk
	hw      record.Position
	ends    ends

	followers []*Progress // in the order of the view's replicas
}

// Progress is what a leader knows of one follower.
type Progress struct {
	Node ident.NodeID
	Life ident.BrokerEpoch // that spoke last
	// Version is of the partition, as the follower knew it when it said where it stands.
	Version uint64
	// Agreed: in this epoch and life the follower has what the leader has, up to
	// where it stands, and is sent what follows.
	Agreed bool
	Next   record.Position // where the next push begins
	Last   ident.Epoch     // of the batch before Next
	Told   ident.Offset    // the high watermark that it was told last
	// Watched: it is to hear at once of a new high watermark.
	Watched bool

	durable record.Position // on its disk
	heard   bool            // it has said so since both agreed
	lost    time.Time       // when both agreed no more
	broken  bool            // its stream ended
	stood   record.Position // where it said that it stands, when both agreed
	spent   bool            // it has everything up to there, and what follows cannot be read
}

// Lead begins an epoch. The log ends at end, of which durable is on disk; hw is what
// this node knows to be committed. Whoever was chosen by an unclean election may not have
// all of that on its disk yet.
func Lead(self ident.NodeID, v View, end, durable record.Position, hw ident.Offset, lag time.Duration, now time.Time) *Leader {
	l := &Leader{self: self, lag: lag, took: end, end: end, durable: durable, hw: record.Least(record.At(hw), durable)}
	l.ends.note(now, end, lag)
	l.See(v, now)
	return l
}

// See takes in a later view of the same epoch: what is committed now, and with it
// the outcome of what was proposed.
func (l *Leader) See(v View, now time.Time) {
	if l.view.Version != 0 && !v.Newer(&l.view) {
		return
	}
	l.view = v
	l.wanted, l.doubt, l.refused = nil, false, false // a higher version settles it, whoever brought it about
	l.rest = now
	followers := make([]*Progress, 0, len(v.Replicas))
	for _, n := range v.Replicas {
		if n == l.self {
			continue
		}
		f := l.Follower(n)
		if f == nil {
			f = &Progress{Node: n, lost: now}
		}
		followers = append(followers, f)
	}
	l.followers = followers
	l.advance()
}

// View is the newest that was seen.
func (l *Leader) View() *View { return &l.view }

// Followers are the other replicas.
func (l *Leader) Followers() []*Progress { return l.followers }

// Follower finds another replica; nil where the node is none.
func (l *Leader) Follower(n ident.NodeID) *Progress {
	for _, f := range l.followers {
		if f.Node == n {
			return f
		}
	}
	return nil
}

// speaker finds the follower that a word is from; nil where the node is no replica, or has
// spoken in a later life. Streams of two lives overlap, and what is read for a follower takes
// its time: what is true of a former life says nothing of the one that is.
func (l *Leader) speaker(from cluster.Life) *Progress {
	if f := l.Follower(from.Node); f != nil && f.Life <= from.Epoch {
		return f
	}
	return nil
}

// Took is where the log ended when the epoch began. Until the high watermark has
// reached it, this leader may know less than is committed.
func (l *Leader) Took() record.Position { return l.took }

// Settled says whether the high watermark is at least what any reader has seen.
func (l *Leader) Settled() bool { return !l.hw.Before(l.took) }

// Firm says whether a follower may be told what this leader's log is. After an unclean
// election its log is what is committed from then on: who finds that both have the same
// goes on with the high watermark that it had, and what lies below may be lost no more.
// So what this leader took over with has to be on its disk first.
func (l *Leader) Firm() bool { return l.view.Unclean == 0 || !l.durable.Before(l.took) }

// HW is the end of what is committed.
func (l *Leader) HW() record.Position { return l.hw }

// End is the end of what was appended.
func (l *Leader) End() record.Position { return l.end }

// Durable is the end of what is on this node's disk.
func (l *Leader) Durable() record.Position { return l.durable }

// Enough says whether the committed ISR is large enough to promise anything.
func (l *Leader) Enough() bool { return len(l.view.ISR) >= l.view.MinInsync }

// Appended notes that the log ends at end.
func (l *Leader) Appended(end record.Position) { l.end = end }

// Synced notes what is on this node's disk.
func (l *Leader) Synced(durable record.Position) {
	if l.durable.Before(durable) {
		l.durable = durable
		l.advance()
	}
}

// Agree notes that a life of a follower, which knows a version, has the leader's log up
// to a position, whose last batch is of the epoch last. False: the node is no replica, or in
// a later life.
func (l *Leader) Agree(from cluster.Life, version uint64, at record.Position, last ident.Epoch) bool {
	f := l.speaker(from)
	if f == nil {
		return false
	}
	*f = Progress{Node: from.Node, Life: from.Epoch, Version: version, Agreed: true, Next: at, stood: at, Last: last, Told: -1, lost: f.lost}
	return true
}

// Part notes that a follower's log is not known to be the leader's (any more).
func (l *Leader) Part(from cluster.Life, now time.Time) {
	if f := l.speaker(from); f != nil {
		*f = Progress{Node: f.Node, Life: from.Epoch, lost: f.since(now)}
	}
}

// Spent notes that a follower was sent everything up to a position, and that this node cannot
// read what follows there, and never will: its own log is damaged. Whether the follower has
// all that is known where it has said that it stands there; else it is to say so anew.
func (l *Leader) Spent(from cluster.Life, at record.Position, now time.Time) {
	f := l.speaker(from)
	if f == nil {
		return
	}
	has := f.Agreed && f.Life == from.Epoch && f.stood == at
	*f = Progress{Node: f.Node, Life: from.Epoch, stood: at, spent: has, lost: f.since(now)}
	if has && l.spent.IsZero() {
		l.spent = now
	}
}

// Successor is who could lead in the place of this leader, whose log is damaged: who has the
// most of what can be read of it, in the life that got it. Whoever has more than this
// leader can give joins the ISR, and is given one lag to come.
func (l *Leader) Successor(now time.Time, alive func(cluster.Life) bool) (who cluster.Life, ok bool) {
	if !l.harmed || l.spent.IsZero() || now.Sub(l.spent) < l.lag {
		return who, false
	}
	var most record.Position
	for _, f := range l.followers {
		life := cluster.Life{Node: f.Node, Epoch: f.Life}
		if f.spent && (!ok || most.Before(f.stood)) && alive(life) {
			who, most, ok = life, f.stood, true
		}
	}
	return who, ok
}

// Lost notes that the stream of a life of a follower ended.
func (l *Leader) Lost(from cluster.Life, now time.Time) {
	if f := l.Follower(from.Node); f != nil && f.Life == from.Epoch {
		*f = Progress{Node: f.Node, Life: f.Life, lost: f.since(now), broken: true}
	}
}

// since is from when on a follower that agrees no more counts as lost.
func (f *Progress) since(now time.Time) time.Time {
	if f.Agreed && f.heard {
		return now
	}
	return f.lost
}

// Held notes what a follower says to have on its disk. A word of another epoch or
// life does not count: then there is no follower.
func (l *Leader) Held(from cluster.Life, epoch ident.Epoch, durable record.Position) *Progress {
	f := l.Follower(from.Node)
	if f == nil || !f.Agreed || f.Life != from.Epoch || epoch != l.view.Epoch || l.end.Before(durable) {
		return nil
	}
	f.heard = true
	if f.durable.Before(durable) {
		f.durable = durable
	}
	l.advance()
	return f
}

// advance moves the high watermark to what every member of the committed and of the
// proposed ISR has on disk. Those that are only proposed are waited for and never
// counted. It never moves back.
func (l *Leader) advance() {
	if !l.Enough() || !l.view.InSync(l.self) {
		return
	}
	to := l.end
	for _, n := range l.view.ISR {
		to = record.Least(to, l.held(n))
	}
	for _, w := range l.wanted {
		to = record.Least(to, l.held(w.Node))
	}
	if l.hw.Before(to) {
		l.hw = to
	}
}

// held is what a replica is known to have on its disk; nothing, where it has not said so
// since it agreed.
func (l *Leader) held(n ident.NodeID) record.Position {
	if n == l.self {
		return l.durable
	}
	if f := l.Follower(n); f != nil && f.Agreed && f.heard {
		return f.durable
	}
	return record.Position{}
}

// Lag is how many records the replica furthest behind has yet to put on its disk.
func (l *Leader) Lag() int64 {
	least := l.durable
	for _, f := range l.followers {
		least = record.Least(least, f.durable)
	}
	return int64(l.end.Offset - least.Offset)
}

// Quiet says that nothing will come of time passing: everybody has everything, and is
// in sync.
func (l *Leader) Quiet() bool {
	if l.wanted != nil || l.durable != l.end || len(l.view.ISR) != len(l.view.Replicas) {
		return false
	}
	for _, f := range l.followers {
		if !f.Agreed || !f.heard || f.durable != l.end {
			return false
		}
	}
	return true
}

// Tick lets time pass.
func (l *Leader) Tick(now time.Time) { l.ends.note(now, l.end, l.lag) }

// Propose says what the ISR should be, if that is not what it is and nothing is open:
// without those whose stream ended and those that are behind, with those that are not.
// From here on the proposed members are waited for too. It is to be told by Declined,
// or by See, what became of it.
//
// Whoever is to join is named in the life that has caught up, and so for as long as the
// proposal is open: a life that begins meanwhile has caught up with nothing. Members of
// the ISR have no epoch there: they stay in it whatever life they are in.
func (l *Leader) Propose(now time.Time, alive func(cluster.Life) bool) (isr []cluster.Life, ok bool) {
	if l.wanted != nil || now.Before(l.rest) || !l.view.InSync(l.self) {
		return nil, false
	}
	changes := false
	for _, n := range l.view.Replicas {
		f, in := l.Follower(n), l.view.InSync(n)
		switch {
		case in && (f == nil || l.harmed || !l.behind(f, now)):
			isr = append(isr, cluster.Life{Node: n})
		case in:
			changes = true
		case f != nil && l.joins(f, now, alive):
			isr = append(isr, cluster.Life{Node: n, Epoch: f.Life})
			changes = true
		}
	}
	if !changes {
		return nil, false
	}
	l.wanted = isr
	return isr, true
}

// Harmed notes that this node's own log is damaged. From then on nobody leaves the ISR by
// its word: it cannot append, so it holds nobody up, and those who are in sync may be the
// only ones who have what it has lost.
func (l *Leader) Harmed() { l.harmed = true }

// restAfterRefusal is how long a leader waits before it proposes again: what it did
// not know is on its way.
const restAfterRefusal = 50 * time.Millisecond

// Declined says that the proposal in hand was certainly not taken. An outcome that
// nobody knows is not declined: the union of both sets stays until See settles it.
//
// Where an earlier attempt on the same version was never answered, that one may be why:
// it was taken and the news of it are on their way, or it may be taken yet. So the
// union stays, and what is proposed from then on is the ISR as it is: that is taken or
// refused by what the version is, and moves it.
func (l *Leader) Declined(now time.Time) {
	l.rest = now.Add(restAfterRefusal)
	if l.doubt {
		l.refused = true
		return
	}
	l.wanted = nil
	l.advance()
}

// Unanswered says that nobody knows what became of an attempt.
func (l *Leader) Unanswered() { l.doubt = l.wanted != nil }

// Again says whether to propose once more what Open says.
func (l *Leader) Again(now time.Time) bool {
	if !l.refused || now.Before(l.rest) {
		return false
	}
	l.rest = now.Add(restAfterRefusal)
	return true
}

// Open says whether the outcome of a proposal is awaited, and what to propose.
func (l *Leader) Open() (isr []cluster.Life, open bool) {
	if l.refused {
		for _, n := range l.view.ISR {
			isr = append(isr, cluster.Life{Node: n})
		}
		return isr, true
	}
	return l.wanted, l.wanted != nil
}

// behind says whether a member of the ISR holds the others up.
func (l *Leader) behind(f *Progress, now time.Time) bool {
	if f.broken {
		return true
	}
	due, ok := l.ends.due(now, l.lag)
	if !f.Agreed || !f.heard {
		return ok && now.Sub(f.lost) >= l.lag
	}
	return ok && f.durable.Before(due)
}

// joins says whether a replica may come into the ISR: in this epoch and life it has
// reached what is committed and what the leader took over with, and it keeps up. What it
// has said counts only if it knew the version that the proposal rests on: at one between
// it may have been no replica, and have let go of its log.
func (l *Leader) joins(f *Progress, now time.Time, alive func(cluster.Life) bool) bool {
	if !f.Agreed || !f.heard || f.Version < l.view.Version || f.durable.Before(l.hw) || f.durable.Before(l.took) {
		return false
	}
	if due, ok := l.ends.due(now, l.lag); ok && f.durable.Before(due) {
		return false
	}
	return alive(cluster.Life{Node: f.Node, Epoch: f.Life})
}

// Sent notes what a push brought a follower: everything up to next, whose last batch
// is of the epoch last.
func (f *Progress) Sent(next record.Position, last ident.Epoch, hw ident.Offset) {
	f.Next, f.Last, f.Told = next, last, hw
}

// Members is the set that is waited for: the committed ISR and the proposed one.
func (l *Leader) Members() []ident.NodeID {
	all := slices.Clone(l.view.ISR)
	for _, w := range l.wanted {
		if !slices.Contains(all, w.Node) {
			all = append(all, w.Node)
		}
	}
	return all
}
