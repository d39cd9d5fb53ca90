package redelivery

import "time"

// Record names a record.
type Record struct {
	Partition int
	Offset    int64
}

// Life is one life of a member: a join begins another.
type Life struct {
	Member string
	Epoch  uint64
}

// Span is from one moment to another, both of it.
type Span struct{ From, To time.Time }

func (s Span) meets(o Span) bool { return !s.From.After(o.To) && !o.From.After(s.To) }

// Delivery is one lease of a record, as the life knows of it that was given it.
type Delivery struct {
	Record
	Life
	Number  int           // as the cluster counts it
	Gateway string        // the node that brought it
	Call    Span          // in the answer of which it came
	Lease   time.Duration // what was left of it when it came

	// Said is when the life first said that it is done, and Heard when it was answered;
	// zero: never. Taken: the answer says that it counts.
	Said, Heard time.Time
	Taken       bool
}

// Kind is what a Fault is.
type Kind int

const (
	NodeKilled    Kind = iota // Node, from its death until the cluster is whole again
	LeaderChanged             // Partition, between the last sight of the old one and the first of the new one
	MemberKilled              // Life fell silent
	MemberLeft                // Life said goodbye
	SessionOver               // Life is over, and was not asked: from its last sign of life until it heard of that
	AnswerLost                // a call of Life for records at Node had no answer
)

// Fault is something that was done, or that was seen to happen. Its fields are those that
// its kind names.
type Fault struct {
	Kind Kind
	Span
	Life
	Node      string
	Leads     bool // the node led the coordinators
	Partition int
}

// History is all that members of one group were given, and all that happened meanwhile.
type History struct {
	Session time.Duration // of the group
	// Reach is how long after a lost answer what was in it comes again at the latest.
	Reach      time.Duration
	Deliveries []Delivery
	Faults     []Fault
}
