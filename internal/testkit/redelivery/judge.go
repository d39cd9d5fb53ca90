package redelivery

import (
	"cmp"
	"slices"
	"time"
)

// Cause is why a record came again.
type Cause string

const (
	ByKill    Cause = "its member was killed"
	ByLeave   Cause = "its member left"
	BySession Cause = "its member's session ended in a fault, or in its own silence"
	ByLeader  Cause = "its partition's leader changed"
	ByWork    Cause = "its member worked for longer than the lease"
	ByWait    Cause = "its acknowledgement waited out a fault for longer than the lease"
	ByReread  Cause = "its leader read the progress again: the coordinator and a member fell together"
	ByLoss    Cause = "its delivery before was in an answer that a killed member did not get"
	ByGateway Cause = "its delivery before was in an answer that died with the gateway"

	unexplained Cause = ""
)

// Judge looks at every record that came more than once, or that the cluster says did.
func (h *History) Judge() Report {
	of := map[Record][]*Delivery{}
	for i := range h.Deliveries {
		d := &h.Deliveries[i]
		of[d.Record] = append(of[d.Record], d)
	}
	r := Report{Causes: map[Cause]int{}}
	for _, all := range of {
		slices.SortStableFunc(all, func(a, b *Delivery) int {
			return cmp.Or(a.Call.To.Compare(b.Call.To), cmp.Compare(a.Number, b.Number))
		})
		if len(all) > 1 || all[0].Number > 1 {
			r.Records++
		}
		for i := range all {
			h.seen(&r, all, i)
			h.unseen(&r, all, i)
		}
	}
	slices.Sort(r.Unexplained)
	return r
}

// seen judges that the i-th delivery of a record followed the one before.
func (h *History) seen(r *Report, all []*Delivery, i int) {
	if i == 0 {
		return
	}
	r.Redeliveries++
	next := all[i]
	for _, d := range all[:i] {
		if d.Taken && d.Heard.Before(next.Call.From) {
			r.tell(h, all, i, "it was acknowledged before")
			return
		}
	}
	if c := h.why(all[i-1], next); c != unexplained {
		r.Causes[c]++
		return
	}
	r.tell(h, all, i, "nothing explains it")
}

// unseen judges deliveries that the cluster counts before the i-th one, and that no member
// has had. A leader that is new gives out again under the number that there was.
func (h *History) unseen(r *Report, all []*Delivery, i int) {
	counted, since := 0, time.Time{}
	for _, d := range all[:i] {
		counted = max(counted, d.Number)
	}
	if i > 0 {
		since = all[i-1].Call.To
	}
	for range all[i].Number - counted - 1 {
		r.Redeliveries++
		if c := h.lost(Span{since, all[i].Call.To}); c != unexplained {
			r.Causes[c]++
			continue
		}
		r.tell(h, all, i, "a delivery is counted before it that nobody had, and no answer was lost")
	}
}

// why finds the first cause for which what one delivery gave could be given again by the
// next. What was answered is over then: a later cause explains nothing.
func (h *History) why(d, next *Delivery) Cause {
	between := Span{d.Call.From, next.Call.To}
	if !d.Heard.IsZero() && d.Heard.Before(between.To) {
		between.To = d.Heard
	}
	var first firstCause
	for i := range h.Faults {
		f := &h.Faults[i]
		if !f.meets(between) {
			continue
		}
		switch {
		case f.Kind == LeaderChanged && f.Partition == d.Partition:
			first.found(ByLeader, f.From)
		case !f.ends(d.Life):
		case f.Kind == MemberKilled:
			first.found(ByKill, f.From)
		case f.Kind == MemberLeft:
			first.found(ByLeave, f.From)
		case h.ended(f):
			first.found(BySession, f.From)
		}
	}
	if over := d.Call.From.Add(d.Lease); !over.After(between.To) {
		switch {
		case d.Said.IsZero() || !d.Said.Before(over):
			first.found(ByWork, over)
		case h.killed("", Span{d.Said, over}):
			first.found(ByWait, over)
		}
	}
	if first.cause == unexplained && h.reread(d.Partition, between) {
		return ByReread
	}
	return first.cause
}

// ends says that a life is over by a fault.
func (f *Fault) ends(life Life) bool {
	return f.Life == life && (f.Kind == MemberKilled || f.Kind == MemberLeft || f.Kind == SessionOver)
}

// reread says that a leader may not have known whether an acknowledgement counts: it was
// under way when the leading coordinator died, and its member was gone then. What is leased
// of the partition, to whomever, is forgotten as by a takeover.
func (h *History) reread(partition int, s Span) bool {
	for i := range h.Faults {
		c := &h.Faults[i]
		if c.Kind != NodeKilled || !c.Leads || !c.meets(s) {
			continue
		}
		for j := range h.Deliveries {
			d := &h.Deliveries[j]
			under := Span{d.Said, s.To}
			if !d.Heard.IsZero() {
				under.To = d.Heard
			}
			if d.Partition == partition && !d.Said.IsZero() && under.meets(c.Span) && slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.ends(d.Life) && f.meets(s) }) {
				return true
			}
		}
	}
	return false
}

// firstCause is the one of several that came first.
type firstCause struct {
	cause Cause
	at    time.Time
}

func (c *firstCause) found(cause Cause, at time.Time) {
	if c.cause == unexplained || at.Before(c.at) {
		*c = firstCause{cause, at}
	}
}

// ended says that a session may have ended: its life was silent for as long, or a node
// died that may have had its signs.
func (h *History) ended(f *Fault) bool {
	return f.To.Sub(f.From) >= h.Session || h.killed("", Span{f.From.Add(-h.Session), f.To})
}

// killed says that a node was dead in a span; "": any.
func (h *History) killed(node string, s Span) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool {
		return f.Kind == NodeKilled && (node == "" || f.Node == node) && f.meets(s)
	})
}

// lost finds an answer that was lost, and why, in which something can have been that came
// again at the end of a span.
func (h *History) lost(s Span) Cause {
	for i := range h.Faults {
		f := &h.Faults[i]
		if f.Kind != AnswerLost || !f.meets(s) || f.To.Add(h.Reach).Before(s.To) {
			continue
		}
		if h.killed(f.Node, f.Span) {
			return ByGateway
		}
		if slices.ContainsFunc(h.Faults, func(k Fault) bool { return k.Kind != SessionOver && k.ends(f.Life) && k.meets(f.Span) }) {
			return ByLoss
		}
	}
	return unexplained
}
