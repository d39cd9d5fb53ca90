package cluster

import "time"

// Leases are those that a node was granted for its life and that may not be over. A value
// never changes; the zero value holds none.
//
// A lease says that the life counts. That the node still leads what it believes to lead it
// says only where the node has acted on all that the coordinator had decided when it
// granted the lease: on an index that is not below the lease's. A node that is cut off from
// the feed alone would renew for ever, and another one lead in its place.
type Leases struct{ all []granted }

type granted struct {
	until time.Time
	index uint64
}

// With is them and another one that lasts until a moment, without those that are over and
// those of no more use.
func (l Leases) With(now, until time.Time, index uint64) Leases {
	next := Leases{make([]granted, 0, len(l.all)+1)}
	for _, g := range l.all {
		switch {
		case g.index <= index && !g.until.Before(until):
			return l // an answer that a later one overtook
		case g.until.After(now) && (g.index < index || g.until.After(until)):
			next.all = append(next.all, g)
		}
	}
	next.all = append(next.all, granted{until, index})
	return next
}

// Until is how long the life is sure to count.
func (l Leases) Until() time.Time { return l.Leads(^uint64(0)) }

// Leads is how long the node is sure to lead what it does by a snapshot of an index; zero:
// it is not.
func (l Leases) Leads(acted uint64) (until time.Time) {
	for _, g := range l.all {
		if g.index <= acted && g.until.After(until) {
			until = g.until
		}
	}
	return until
}
