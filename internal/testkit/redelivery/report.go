package redelivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a Judge found.
type Report struct {
	Records      int // that came more than once
	Redeliveries int
	Causes       map[Cause]int
	Unexplained  []string // each with its story
}

// String is a table of the causes.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d redeliveries of %d records, %d of them unexplained", r.Redeliveries, r.Records, len(r.Unexplained))
	causes := slices.SortedFunc(maps.Keys(r.Causes), func(x, y Cause) int { return r.Causes[y] - r.Causes[x] })
	for _, c := range causes {
		fmt.Fprintf(&b, "\n%8d  %s", r.Causes[c], c)
	}
	return b.String()
}

// tell keeps what nothing explains: all deliveries of the record up to this one, and what
// happened between the last two.
func (r *Report) tell(h *History, all []*Delivery, i int, what string) {
	var b strings.Builder
	next := all[i]
	zero := all[0].Call.From
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Sub(zero).Round(time.Millisecond).String()
	}
	fmt.Fprintf(&b, "partition %d offset %d came again: %s (times since %s)", next.Partition, next.Offset, what, zero.Format(time.TimeOnly))
	for _, d := range all[:i+1] {
		fmt.Fprintf(&b, "\n  delivery %d to %s in life %d by %s, call %s to %s, lease of %s, acknowledged at %s, answered at %s, taken %t",
			d.Number, d.Member, d.Epoch, d.Gateway, at(d.Call.From), at(d.Call.To), d.Lease, at(d.Said), at(d.Heard), d.Taken)
	}
	between := Span{zero, next.Call.To}
	if i > 0 {
		between.From = all[i-1].Call.From
	}
	for j := range h.Faults {
		if f := &h.Faults[j]; f.meets(between) && (f.Kind != LeaderChanged || f.Partition == next.Partition) {
			fmt.Fprintf(&b, "\n  %s to %s: %s", at(f.From), at(f.To), f.what())
		}
	}
	r.Unexplained = append(r.Unexplained, b.String())
}

func (f *Fault) what() string {
	switch f.Kind {
	case NodeKilled:
		if f.Leads {
			return f.Node + " was killed, which led the coordinators"
		}
		return f.Node + " was killed"
	case LeaderChanged:
		return fmt.Sprintf("partition %d got another leader", f.Partition)
	case MemberKilled:
		return fmt.Sprintf("%s was killed in life %d", f.Member, f.Epoch)
	case MemberLeft:
		return fmt.Sprintf("%s left in life %d", f.Member, f.Epoch)
	case SessionOver:
		return fmt.Sprintf("life %d of %s was over", f.Epoch, f.Member)
	case AnswerLost:
		return fmt.Sprintf("%s lost an answer of %s in life %d", f.Member, f.Node, f.Epoch)
	}
	return "?"
}
