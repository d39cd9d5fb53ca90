package sim

import (
	"errors"
	"slices"
	"sort"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// log is a partition's log as one life of a broker has it open. It is what
// broker/storage promises to be, on a disk of the world.
type log struct {
	w       *World
	b       *broker
	d       *disk
	part    int
	life    int     // of the process that opened it
	s       *stored // with everything that was queued
	durable record.Position
	damage  error
	gone    bool // set aside
	appends int
	cutting bool // its owner's machine is of the log before the cut

	snapshotter func() (ident.Offset, []byte)
}

func (l *log) dead() bool { return l.gone || !l.d.p.up || l.d.p.life != l.life }

// Admit is of replica.Log.
func (l *log) Admit(int) error {
	switch {
	case l.damage != nil:
		return l.damage
	case l.d.full:
		l.w.reached.hit("refused: disk full")
		return fault.New(fault.DiskFull, "no room")
	}
	return nil
}

// Append is of replica.Log.
func (l *log) Append(b record.Batch, written, durable func(error)) error {
	if l.dead() {
		return fault.New(fault.LeaderUnavailable, "the process is gone")
	}
	if l.damage != nil {
		return l.damage
	}
	h, at := b.Header(), l.EndPosition()
	if h.Base != at.Offset || h.Epoch < l.LastEpoch() || h.Timestamp < l.LastTimestamp() {
		l.w.fail("contiguous", "%s: a batch of offset %d, epoch %d, time %d is to follow offset %d, epoch %d, time %d",
			l.d.p.name, h.Base, h.Epoch, h.Timestamp, at.Offset, l.LastEpoch(), l.LastTimestamp())
	}
	k := kept{batch: b, at: at, after: at.After(h), epoch: h.Epoch, ms: h.Timestamp, span: h.Span}
	l.s.kept = append(l.s.kept, k)
	part := l.part
	l.d.queue(&op{
		part: part, log: l, after: k.after, written: written, durable: durable,
		do: func(f *folder) { f.logs[part].kept = append(f.logs[part].kept, k) },
	})
	l.w.appended(l.b, part, &l.s.kept[len(l.s.kept)-1])
	if l.appends++; l.appends%l.w.set.SnapEvery == 0 {
		l.w.in(l.d.p, 0, l.snapshot)
	}
	return nil
}

// snapshot keeps the producer state as of the log's end.
func (l *log) snapshot() {
	if l.dead() || l.damage != nil {
		return
	}
	at, state := l.snapshotter()
	if at != l.EndPosition().Offset {
		return // the log is being cut, or was begun ahead of itself
	}
	l.keep(snap{at, state})
	part := l.part
	committed := l.s.committed
	l.d.queue(&op{part: part, do: func(f *folder) { f.logs[part].committed = committed; f.logs[part].addSnap(snap{at, state}) }})
}

func (l *log) keep(s snap) { l.s.addSnap(s) }

// addSnap keeps the two newest, and the newest one of what is committed.
func (s *stored) addSnap(n snap) {
	snaps, committed := []snap{n}, n.at <= s.committed
	for _, o := range s.snaps {
		if o.at != n.at && (len(snaps) < 2 || !committed) {
			snaps = append(snaps, o)
			committed = committed || o.at <= s.committed
		}
	}
	s.snaps = snaps
}

// knows says whether a producer state is kept for whoever begins at an offset.
func (s *stored) knows(start ident.Offset) bool {
	return slices.ContainsFunc(s.snaps, func(k snap) bool { return start <= k.at && k.at <= s.committed })
}

// Committed is of replica.Log.
func (l *log) Committed() ident.Offset { return l.s.committed }

// Read is of replica.Log.
func (l *log) Read(from, limit ident.Offset, maxBytes int) ([]byte, error) {
	if from < l.s.start.Offset {
		return nil, fault.New(fault.OffsetExpired, "gone")
	}
	return l.gather(sort.Search(len(l.s.kept), func(i int) bool { return l.s.kept[i].after.Offset > from }), limit, maxBytes, false)
}

// ReadFrom is of replica.Log.
func (l *log) ReadFrom(p record.Position, maxBytes int) ([]byte, error) {
	if p.Before(l.s.start) {
		return nil, fault.New(fault.OffsetExpired, "gone")
	}
	i := sort.Search(len(l.s.kept), func(i int) bool { return !l.s.kept[i].at.Before(p) })
	if i == len(l.s.kept) {
		if p != l.EndPosition() {
			return nil, fault.New(fault.OffsetNotFound, "beyond the end")
		}
		return nil, l.damage
	}
	if l.s.kept[i].at != p {
		return nil, fault.New(fault.OffsetNotFound, "inside a batch")
	}
	return l.gather(i, 1<<62, maxBytes, true)
}

// gather puts batches together, up to one that is damaged.
func (l *log) gather(i int, limit ident.Offset, maxBytes int, voids bool) ([]byte, error) {
	var out []byte
	for ; i < len(l.s.kept) && l.s.kept[i].at.Offset < limit; i++ {
		if i == l.s.bad {
			l.found()
			if len(out) == 0 {
				return nil, l.damage
			}
			break
		}
		k := &l.s.kept[i]
		if k.span == 0 && !voids {
			continue
		}
		if len(out) > 0 && len(out)+len(k.batch) > maxBytes {
			break
		}
		out = append(out, k.batch...)
	}
	return out, nil
}

// found notices that the log is damaged.
func (l *log) found() {
	if l.damage == nil {
		l.w.note(l.d.p.name, "partition %d is found damaged at %d", l.part, l.s.kept[l.s.bad].at.Offset)
		l.w.reached.hit("damage found")
		l.damage = fault.New(fault.LeaderUnavailable, "damaged").Lasts()
	}
}

// Start is of replica.Log.
func (l *log) Start() ident.Offset { return l.s.start.Offset }

// StartPosition is of replica.Log.
func (l *log) StartPosition() record.Position { return l.s.start }

// EndPosition is of replica.Log.
func (l *log) EndPosition() record.Position { return l.s.end() }

func (s *stored) end() record.Position {
	if n := len(s.kept); n > 0 {
		return s.kept[n-1].after
	}
	return s.start
}

// DurablePosition is of replica.Log.
func (l *log) DurablePosition() record.Position { return l.durable }

// LastEpoch is of replica.Log.
func (l *log) LastEpoch() ident.Epoch {
	if n := len(l.s.kept); n > 0 {
		return l.s.kept[n-1].epoch
	}
	return l.s.past
}

// LastTimestamp is of replica.Log.
func (l *log) LastTimestamp() int64 {
	if n := len(l.s.kept); n > 0 {
		return l.s.kept[n-1].ms
	}
	return l.s.startMs
}

// Bytes is of replica.Log.
func (l *log) Bytes() int64 { return int64(len(l.s.kept)) }

// Damage is of replica.Log.
func (l *log) Damage() error { return l.damage }

// OffsetAt is of replica.Log.
func (l *log) OffsetAt(ms int64) (ident.Offset, error) {
	for i := range l.s.kept {
		if k := &l.s.kept[i]; k.span > 0 && k.ms >= ms {
			return k.at.Offset, nil
		}
	}
	return l.EndPosition().Offset, nil
}

// EpochEnd is of replica.Log.
func (l *log) EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset) {
	last, end := l.EpochEndPosition(e)
	return last, end.Offset
}

// EpochEndPosition is of replica.Log.
func (l *log) EpochEndPosition(e ident.Epoch) (ident.Epoch, record.Position) {
	n := sort.Search(len(l.s.kept), func(i int) bool { return l.s.kept[i].epoch > e })
	switch {
	case n > 0:
		return l.s.kept[n-1].epoch, l.s.kept[n-1].after
	case l.s.past != 0 && l.s.past <= e:
		return l.s.past, l.s.start
	}
	return 0, l.s.start
}

// TruncateTo is of replica.Log.
func (l *log) TruncateTo(p record.Position) error {
	switch {
	case l.dead():
		return errors.New("the process is gone")
	case p.Before(l.s.start):
		return errors.New("below the log start")
	case !p.Before(l.EndPosition()):
		return nil
	}
	l.w.truncates(l.b, l.part, p)
	l.s.cut(p)
	l.durable = record.Least(l.durable, l.s.end())
	for _, o := range l.d.pending {
		if o.log == l && l.s.end().Before(o.after) {
			o.cut = true
		}
	}
	part := l.part
	l.cutting = true
	defer func() { l.cutting = false }()
	return l.d.await(&op{part: part, do: func(f *folder) { f.logs[part].cut(p) }})
}

// cut takes away what lies behind a position; a batch that it lies in goes whole.
func (s *stored) cut(p record.Position) {
	n := sort.Search(len(s.kept), func(i int) bool { return p.Before(s.kept[i].after) })
	s.kept = s.kept[:n:n]
	if s.audited {
		s.agrees = min(s.agrees, s.first+n)
	}
	if s.bad >= n {
		s.bad = -1
	}
	s.forget()
}

// Forget is of replica.Log.
func (l *log) Forget(durable func(error)) error {
	if l.dead() {
		return errors.New("the process is gone")
	}
	l.w.reached.hit("producers of lost records forgotten")
	l.s.forget()
	part := l.part
	l.d.queue(&op{part: part, do: func(f *folder) { f.logs[part].forget() }, durable: durable})
	return nil
}

// forget drops the producer states of more than the log holds; where none is left of its
// start or above, nothing is known of what was before its start.
func (s *stored) forget() {
	end := s.end().Offset
	s.ahead, s.committed = 0, min(s.committed, end)
	s.snaps = slices.DeleteFunc(slices.Clone(s.snaps), func(k snap) bool { return k.at > end })
	if start := s.start.Offset; start > 0 && !slices.ContainsFunc(s.snaps, func(k snap) bool { return k.at >= start }) {
		s.snaps = []snap{{at: s.start.Offset}}
		s.committed = max(s.committed, s.start.Offset)
	}
}

// Restart is of replica.Log.
func (l *log) Restart(start record.Position, producers []byte, at ident.Offset) error {
	if l.dead() {
		return errors.New("the process is gone")
	}
	l.w.restarts(l.b, l.part, start.Offset)
	s := newStored(l.s.of)
	s.start, s.ahead, s.snaps, s.committed = start, at, []snap{{at, producers}}, at
	for _, o := range l.d.pending {
		if o.log == l {
			o.cut = true
		}
	}
	l.s, l.damage, l.durable = s, nil, s.start
	part, durable := l.part, s.clone()
	l.cutting = true
	defer func() { l.cutting = false }()
	return l.d.await(&op{part: part, do: func(f *folder) { f.logs[part] = durable.clone() }})
}

// SetStart is of replica.Log.
func (l *log) SetStart(start, hw ident.Offset) error {
	l.s.committed = max(l.s.committed, hw)
	return l.startAt(record.At(min(start, l.EndPosition().Offset)))
}

// Retain is of replica.Log. It drops segments, of a number of batches each, when there
// are too many, or everything when all of it is too old.
func (l *log) Retain(now time.Time, hw record.Position) error {
	if l.dead() || l.damage != nil || l.w.set.RetainBatches == 0 {
		return nil
	}
	l.s.committed = max(l.s.committed, hw.Offset)
	set := &l.w.set
	if n := len(l.s.kept); n > 0 && !hw.Before(l.EndPosition()) && l.EndPosition() == l.durable && l.s.kept[n-1].span > 0 && now.UnixMilli()-l.LastTimestamp() > set.RetainAge.Milliseconds() {
		return l.startAt(l.EndPosition())
	}
	if len(l.s.kept) < 2*set.RetainBatches {
		return nil
	}
	n := len(l.s.kept) - set.RetainBatches
	for n > 0 && (hw.Before(l.s.kept[n-1].after) || l.durable.Before(l.s.kept[n-1].after) || l.s.kept[n-1].after.Voids > 0) {
		n-- // segments do not end with voids
	}
	if n == 0 {
		return nil
	}
	return l.startAt(l.s.kept[n-1].after)
}

// Purge is of replica.Log. It drops whole batches, where segments would be larger.
func (l *log) Purge(below ident.Offset, hw record.Position) error {
	if l.dead() || l.damage != nil {
		return nil
	}
	l.s.committed = max(l.s.committed, hw.Offset)
	goes := func(k kept) bool {
		return k.after.Offset <= below && !hw.Before(k.after) && !l.durable.Before(k.after)
	}
	n := sort.Search(len(l.s.kept), func(i int) bool { return !goes(l.s.kept[i]) })
	for n > 0 && l.s.kept[n-1].after.Voids > 0 {
		n-- // segments do not end with voids
	}
	if n == 0 {
		return nil
	}
	return l.startAt(l.s.kept[n-1].after)
}

func (l *log) startAt(p record.Position) error {
	if l.dead() || !l.s.start.Before(p) {
		return nil
	}
	if !l.s.knows(p.Offset) {
		l.snapshot() // it counts as soon as it is committed
		if !l.s.knows(p.Offset) {
			return nil
		}
	}
	l.w.drops(l.b, l.part, p)
	l.s.moveStart(p)
	part, committed := l.part, l.s.committed
	_ = l.d.await(&op{part: part, do: func(f *folder) { f.logs[part].committed = committed; f.logs[part].moveStart(p) }})
	return nil
}

func (s *stored) moveStart(p record.Position) {
	n := sort.Search(len(s.kept), func(i int) bool { return p.Before(s.kept[i].after) })
	if n > 0 {
		s.startMs, s.past = s.kept[n-1].ms, s.kept[n-1].epoch
	}
	if n < len(s.kept) && s.kept[n].epoch != s.past {
		s.past = 0
	}
	s.start = p
	s.audited = false
	s.kept = slices.Clone(s.kept[n:])
	if s.bad -= n; s.bad < 0 {
		s.bad = -1
	}
}

// ProducersUpTo is of replica.Log.
func (l *log) ProducersUpTo(hw ident.Offset) (ident.Offset, []byte, bool) {
	for _, k := range l.s.snaps {
		if k.at <= hw {
			return k.at, k.state, true
		}
	}
	return 0, nil, false
}

// recovered is the producer state to begin with, and where the log is to be folded from.
func (l *log) recovered() (ident.Offset, []byte) {
	for _, k := range l.s.snaps {
		if k.at >= l.s.start.Offset && (k.at <= l.s.end().Offset || k.at == l.s.ahead) {
			return k.at, k.state
		}
	}
	return l.s.start.Offset, nil
}
