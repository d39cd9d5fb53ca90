package state

import (
	"cmp"
	"slices"
	"strings"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// maxOutcomes is how many spans of dead, and of skipped, records are remembered of a
// group on a partition; what became of the oldest ones is forgotten first.
const maxOutcomes = 1_024

// What the parts of a progress take of memory, about.
const (
	progressBytes = 200
	spanBytes     = 16
	countBytes    = 16
	intentBytes   = 80
)

// began is the progress of a group that starts at an offset.
func began(p cluster.Position) cluster.Progress {
	out := cluster.Progress{Partition: p.Partition, Start: p.Offset, Floor: p.Offset}
	if p.Offset > 0 {
		out.Skipped = []cluster.Span{{From: 0, To: p.Offset}}
	}
	return out
}

// moved is the progress after a reset to an offset: everything from there on is yet to
// be done, whatever became of it before, and what was left between is skipped. Intents
// stay: each has used up a number of its sequence, so it is carried out.
func moved(p cluster.Progress, to ident.Offset) cluster.Progress {
	p.Dead, p.Skipped, p.Expired = below(p.Dead, to), below(p.Skipped, to), below(p.Expired, to)
	if to > p.Floor {
		passed := less([]cluster.Span{{From: p.Floor, To: to}}, union(p.Done, p.Dead, p.Expired, dying(p.Intents)))
		p.Skipped = bounded(union(p.Skipped, passed))
	}
	p.Start, p.Floor, p.Lost = to, to, 0
	p.Done, p.Counts = nil, nil
	return p
}

func dying(intents []cluster.Intent) (all []cluster.Span) {
	for _, i := range intents {
		all = append(all, single(i.Offset))
	}
	return union(all)
}

// bounded forgets the oldest.
func bounded(set []cluster.Span) []cluster.Span {
	if over := len(set) - maxOutcomes; over > 0 {
		return slices.Clone(set[over:])
	}
	return set
}

// fits says that what a part of a commit says can be, whatever is known.
func fits(c *cluster.CommitOf) bool {
	if !sound(c.Done) || c.Start < 0 || c.Start > maxOffset {
		return false
	}
	out := func(o ident.Offset) bool { return o < 0 || o >= maxOffset }
	early := func(i cluster.Intent) bool { return slices.Contains(c.Published, i.Offset) } // nobody has published what is yet to be kept
	return !slices.ContainsFunc(c.Intents, early) && !slices.ContainsFunc(c.Counts, func(k cluster.Count) bool { return out(k.Offset) || k.Deliveries < 0 }) &&
		!slices.ContainsFunc(c.Intents, func(i cluster.Intent) bool { return out(i.Offset) || i.Sequence < 0 || i.Deliveries < 0 }) &&
		!slices.ContainsFunc(c.Published, out)
}

// maxHeld bounds each list of what is unfinished. A leader stops reading at half as much.
const maxHeld = 2 * cluster.MaxUnfinished

// merge unites what is known with what a part of a commit says; said twice, it changes
// nothing more. It refuses where that would leave a gap in the sequence of intents, or
// more unfinished than there may be.
func merge(p cluster.Progress, c *cluster.CommitOf) (cluster.Progress, bool) {
	if !intend(&p, c.Intents) {
		return p, false
	}
	var dead []cluster.Span
	for _, o := range c.Published {
		if i := slices.IndexFunc(p.Intents, func(i cluster.Intent) bool { return i.Offset == o }); i >= 0 {
			p.Intents = slices.Concat(p.Intents[:i], p.Intents[i+1:])
			dead = append(dead, single(o))
		}
	}
	if len(dead) > 0 {
		dead = union(dead)
		p.Dead = union(p.Dead, dead)
		p.Skipped, p.Expired = less(p.Skipped, dead), less(p.Expired, dead)
	}
	// What is dead, or on its way there, is not done as well, whoever says so late.
	p.Done = less(less(union(p.Done, from(union(c.Done), p.Floor)), p.Dead), dying(p.Intents))
	if c.Start > p.Floor {
		p.Lost += size(less([]cluster.Span{{From: p.Floor, To: c.Start}}, union(p.Done, p.Dead, dying(p.Intents))))
		p.Floor = c.Start
	}
	for _, s := range union(p.Done, from(p.Dead, p.Floor)) {
		if s.From > p.Floor {
			break
		}
		p.Floor = max(p.Floor, s.To)
	}
	p.Done = from(p.Done, p.Floor)
	p.Counts = counts(&p, c.Counts)
	if c.Start > 0 {
		p.Dead, p.Skipped, p.Expired = from(p.Dead, c.Start), from(p.Skipped, c.Start), from(p.Expired, c.Start)
	}
	p.Dead = bounded(p.Dead)
	return p, len(p.Done) <= maxHeld && len(p.Counts) <= maxHeld && len(p.Intents) <= maxHeld
}

// intend adds the intents that are not known yet. It refuses a gap in their sequence, a
// second one of a record, and a number that went to another record: such a letter would
// pass for a copy of that one's.
func intend(p *cluster.Progress, more []cluster.Intent) bool {
	for _, i := range more {
		switch {
		case i.Sequence < p.Sequence && intended(p, i):
			continue
		case i.Sequence != p.Sequence, holds(p.Dead, i.Offset), slices.ContainsFunc(p.Intents, func(k cluster.Intent) bool { return k.Offset == i.Offset }):
			return false
		}
		if len(i.Reason) > cluster.MaxReasonBytes {
			i.Reason = strings.ToValidUTF8(i.Reason[:cluster.MaxReasonBytes], "")
		}
		p.Intents = append(slices.Clip(p.Intents), i)
		p.Sequence++
	}
	return true
}

// intended says that an intent of an earlier number is the one that had it: it is still
// there, or was carried out.
func intended(p *cluster.Progress, i cluster.Intent) bool {
	for k := range p.Intents {
		if p.Intents[k].Sequence == i.Sequence {
			return p.Intents[k].Offset == i.Offset
		}
	}
	return i.Offset < p.Floor || holds(p.Dead, i.Offset)
}

// counts are those that are known and those that are told, of records that are neither
// done nor on their way to be dead. None falls.
func counts(p *cluster.Progress, told []cluster.Count) []cluster.Count {
	ended := union(p.Done, p.Dead, dying(p.Intents))
	over := func(c cluster.Count) bool {
		return c.Offset < p.Floor || c.Deliveries < 2 || holds(ended, c.Offset)
	}
	if len(told) == 0 && !slices.ContainsFunc(p.Counts, over) {
		return p.Counts
	}
	all := slices.DeleteFunc(slices.Concat(p.Counts, told), over)
	slices.SortFunc(all, func(a, b cluster.Count) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Deliveries, a.Deliveries))
	})
	all = slices.CompactFunc(all, func(a, b cluster.Count) bool { return a.Offset == b.Offset })
	if len(all) == 0 {
		return nil
	}
	return slices.Clip(all)
}

// weight is about how much memory a progress takes.
func weight(p *cluster.Progress) int {
	n := progressBytes + spanBytes*(len(p.Done)+len(p.Dead)+len(p.Skipped)+len(p.Expired)) + countBytes*len(p.Counts)
	for i := range p.Intents {
		n += intentBytes + len(p.Intents[i].Reason)
	}
	return n
}
