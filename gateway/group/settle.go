package group

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// Stale is an entry that was not taken, and why.
type Stale struct {
	Partition ident.Index
	Offset    ident.Offset
	Err       error // a *fault.Error
}

// Extended is a lease that was extended, and how long it is now.
type Extended struct {
	Partition ident.Index
	Offset    ident.Offset
	Until     time.Time
}

// Settled is what became of what one call said.
type Settled struct {
	Stale    []Stale
	Extended []Extended
}

// Batch gathers entries of one member that go to the leaders together. The zero value is
// empty.
type Batch struct {
	of    []partOf // by partition, in the order in which they came
	count int
}

// partOf is what is said of one partition.
type partOf struct {
	rpc.SettleOf
	// kept are the records of acknowledgements, others those of all else. An
	// acknowledgement may come again, whatever order it comes in.
	kept, others map[ident.Offset]bool
	least        ident.Offset // of others
}

// Count is how many entries there are.
func (b *Batch) Count() int { return b.count }

// Add takes what one call says. It is false where that must not travel with what is there
// already: two things said of one record have an order, and each wants its own answer.
// An empty batch takes anything.
func (b *Batch) Add(entries []wire.Entry) bool {
	if b.count > 0 && (b.count+len(entries) > rpc.MaxSettled || slices.ContainsFunc(entries, b.clashes)) {
		return false
	}
	for _, e := range entries {
		b.add(e)
	}
	b.count += len(entries)
	return true
}

func (b *Batch) find(i ident.Index) *partOf {
	for k := range b.of {
		if b.of[k].Partition.Index == i {
			return &b.of[k]
		}
	}
	return nil
}

func (b *Batch) clashes(e wire.Entry) bool {
	p := b.find(e.Partition)
	switch {
	case p == nil:
		return false
	case e.Verb == wire.Through:
		return p.least <= e.Offset && len(p.others) > 0
	case e.Verb == wire.Ack:
		return p.others[e.Offset]
	}
	return p.others[e.Offset] || p.kept[e.Offset] || e.Offset <= p.Through
}

func (b *Batch) add(e wire.Entry) {
	p := b.find(e.Partition)
	if p == nil {
		b.of = append(b.of, partOf{SettleOf: rpc.SettleOf{Partition: ident.Partition{Index: e.Partition}, Through: -1}, kept: map[ident.Offset]bool{}, others: map[ident.Offset]bool{}})
		p = &b.of[len(b.of)-1]
	}
	switch e.Verb {
	case wire.Ack:
		p.ack(e.Offset)
		return
	case wire.Through:
		// The last one stands for all; but a leader that knows no leases takes it for the
		// record it names alone, so the others are named as well.
		before := p.Through
		p.Through = max(before, e.Offset)
		if least := min(before, e.Offset); least >= 0 && least < p.Through {
			p.ack(least)
		}
		return
	case wire.Nack:
		p.Nack = append(p.Nack, rpc.Nack{Offset: e.Offset, Delay: e.Delay})
	case wire.Extend:
		p.Extend = append(p.Extend, e.Offset)
	case wire.Reject:
		p.Reject = append(p.Reject, rpc.Reject{Offset: e.Offset, Reason: e.Reason})
	}
	if len(p.others) == 0 || e.Offset < p.least {
		p.least = e.Offset
	}
	p.others[e.Offset] = true
}

func (p *partOf) ack(o ident.Offset) {
	if !p.kept[o] {
		p.kept[o] = true
		p.Ack = append(p.Ack, o)
	}
}

// Parts are what is to be said, by partition of the topic.
func (b *Batch) Parts(t ident.TopicID) []rpc.SettleOf {
	out := make([]rpc.SettleOf, len(b.of))
	for i := range b.of {
		out[i] = b.of[i].SettleOf
		out[i].Partition.Topic = t
	}
	return out
}

// Twice says which record a call says two things of, if it does; nil: none.
func Twice(entries []wire.Entry) error {
	var b Batch
	for i, e := range entries {
		if b.count > 0 && b.clashes(e) {
			return fault.New(fault.Invalid, "field %q: what is said of offset %d of partition %d contradicts what is said before; say one thing of a record at a time", e.Verb, e.Offset, e.Partition).With("field", string(e.Verb))
		}
		b.add(e)
		b.count = i + 1
	}
	return nil
}

// Outcome is what became of a batch.
type Outcome struct {
	stale    map[ident.Index][]rpc.Stale // by offset
	extended map[place]time.Time
	failed   map[ident.Index]error
}

// Outcomes makes one of what leaders said of the parts. now is when they did.
func Outcomes(of []rpc.SettledOf, now time.Time) Outcome {
	o := Outcome{stale: map[ident.Index][]rpc.Stale{}, extended: map[place]time.Time{}, failed: map[ident.Index]error{}}
	for i := range of {
		p := &of[i]
		if p.Err != nil {
			o.failed[p.Partition.Index] = p.Err
		}
		for _, e := range p.Extended {
			o.extended[place{p.Partition.Index, e.Offset}] = now.Add(e.Left)
		}
		if all := slices.Clone(p.Stale); len(all) > 0 {
			slices.SortStableFunc(all, func(a, b rpc.Stale) int { return cmp.Compare(a.Offset, b.Offset) })
			o.stale[p.Partition.Index] = all
		}
	}
	return o
}

// between are those of a partition from an offset to another that were not taken.
func (o Outcome) between(p ident.Index, from, to ident.Offset) (out []Stale) {
	all := o.stale[p]
	i, _ := slices.BinarySearchFunc(all, from, func(s rpc.Stale, o ident.Offset) int { return cmp.Compare(s.Offset, o) })
	for ; i < len(all) && all[i].Offset <= to; i++ {
		out = append(out, Stale{p, all[i].Offset, all[i].Err})
	}
	return out
}

// Refused counts the entries that were not taken: not those of which only records before the
// one that they name were not.
func Refused(entries []wire.Entry, stale []Stale) (n int) {
	at := make(map[place]bool, len(stale))
	for _, s := range stale {
		at[place{s.Partition, s.Offset}] = true
	}
	for _, e := range entries {
		if at[place{e.Partition, e.Offset}] {
			n++
		}
	}
	return n
}

type place struct {
	partition ident.Index
	offset    ident.Offset
}

// once leaves one of each record.
func once(stale []Stale) []Stale {
	seen := make(map[place]bool, len(stale))
	return slices.DeleteFunc(stale, func(s Stale) bool {
		at := place{s.Partition, s.Offset}
		was := seen[at]
		seen[at] = true
		return was
	})
}

// Of is the answer to the entries of one call: those that were not taken and the leases
// that were extended, and an error where that is not known of some, or cannot be known yet. The error names the stale ones
// too, and the partitions whose entries are to be said again.
func (o Outcome) Of(entries []wire.Entry) (Settled, error) {
	var stale []Stale
	var extended []Extended
	var worst error
	var open []ident.Index
	for _, e := range entries {
		err := o.failed[e.Partition]
		if err != nil && !definite(err) {
			if !slices.Contains(open, e.Partition) {
				open = append(open, e.Partition)
			}
			if worst == nil || fault.Is(err, fault.UnknownOutcome) {
				worst = err
			}
			continue
		}
		switch {
		case err != nil:
			stale = append(stale, Stale{e.Partition, e.Offset, err})
		case e.Verb == wire.Through:
			stale = append(stale, o.between(e.Partition, 0, e.Offset)...)
		default:
			stale = append(stale, o.between(e.Partition, e.Offset, e.Offset)...)
		}
		if until, ok := o.extended[place{e.Partition, e.Offset}]; ok && e.Verb == wire.Extend {
			extended = append(extended, Extended{e.Partition, e.Offset, until})
		}
	}
	stale = once(stale)
	out := Settled{stale, extended}
	if worst == nil {
		return out, nil
	}
	slices.Sort(open)
	f := fault.As(worst)
	if f.Kind == fault.UnknownOutcome {
		f = fault.New(fault.UnknownOutcome, "it is not known what became of the entries of the partitions named; say them again (%w)", errors.Unwrap(f))
	}
	f = f.With("partitions", open)
	if len(stale) > 0 {
		f = f.With("stale", Told(stale))
	}
	return out, f
}

// definite says that an error will not go away: the entries that it is about are stale.
func definite(err error) bool {
	switch fault.KindOf(err) {
	case fault.Fenced, fault.PartitionNotFound, fault.OffsetNotFound, fault.MemberNotFound, fault.GroupNotFound, fault.TopicNotFound, fault.Invalid:
		return true
	}
	return false
}

// Telling is a stale entry as clients see it.
type Telling struct {
	Partition ident.Index  `json:"partition"`
	Offset    ident.Offset `json:"offset"`
	Reason    string       `json:"reason"`
}

// Told are stale entries as clients see them.
func Told(stale []Stale) []Telling {
	out := make([]Telling, len(stale))
	for i, s := range stale {
		out[i] = Telling{s.Partition, s.Offset, fault.KindOf(s.Err).Code()}
	}
	return out
}

// AppendStale writes the member "stale" of an answer.
func AppendStale(b []byte, stale []Stale) []byte {
	b = append(b, '[')
	for i, s := range Told(stale) {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.Begin(b).Int("partition", int64(s.Partition)).Int("offset", int64(s.Offset)).Str("reason", s.Reason).Close()
	}
	return append(b, ']')
}

// AppendExtended writes the member "extended" of an answer.
func AppendExtended(b []byte, extended []Extended, now time.Time) []byte {
	b = append(b, '[')
	for i, e := range extended {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.Begin(b).Int("partition", int64(e.Partition)).Int("offset", int64(e.Offset)).Int("lease_ms", max(0, e.Until.Sub(now).Milliseconds())).
			Raw("lease_until", append(wire.AppendTime([]byte{'"'}, e.Until.UnixMilli()), '"')).Close()
	}
	return append(b, ']')
}

// LifeOf names a member's life.
func (v View) LifeOf(member string, epoch ident.MemberEpoch) cluster.MemberLife {
	return cluster.MemberLife{Group: v.Group.ID, Member: member, Epoch: epoch}
}
