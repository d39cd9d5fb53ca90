package cluster

import (
	"time"

	"tidewire/internal/ident"
)

// GroupMode is how the members of a group share its topic.
type GroupMode string

const (
	// Exclusive: a partition has one owner at a time, and gets its records in order.
	Exclusive GroupMode = "exclusive"
	// Shared: any member works on any partition, each record in one hand.
	Shared GroupMode = "shared"
)

// Bounds and defaults of the settings of a group.
const (
	DefaultLease         = 30 * time.Second
	MinLease             = 100 * time.Millisecond
	MaxLease             = 12 * time.Hour
	DefaultSession       = 10 * time.Second
	MinSession           = time.Second
	MaxSession           = time.Hour
	DefaultMaxDeliveries = 5
	MaxMaxDeliveries     = 1_000
	DefaultBackoff       = time.Second
	MaxBackoff           = time.Minute // also of what a backoff doubles up to
	DefaultMaxInFlight   = 256
	MaxUnfinished        = 1_024 // records of one group on one partition, between its floor and its read position; also the bound of max_in_flight
)

// GroupSettings of a group, all of them filled in.
type GroupSettings struct {
	Mode          GroupMode
	Lease         time.Duration // how long a member holds a record
	Session       time.Duration // how long a member may be silent
	MaxDeliveries int           // after so many a record that fails is dead
	Backoff       time.Duration // before the second delivery; it doubles. 0: none
	DeadLetter    string        // name of the topic for what is dead
	MaxInFlight   int           // records leased to one member at a time
}

// Group is one life of a consumer group of a topic.
type Group struct {
	ID       ident.GroupID
	Topic    ident.TopicID
	Name     string
	Settings GroupSettings
	Created  time.Time
	// Reset counts how often the group was moved to other offsets. What was leased
	// before counts no more.
	Reset    uint64
	Members  []Member `json:",omitempty"` // by id, ascending
	Owners   []Owner  `json:",omitempty"` // by partition, ascending; none in shared mode
	Modified uint64   // Raft index of the last change of anything here
}

// Member is one life of a member: from its join to its next one, or its end.
type Member struct {
	ID    string
	Epoch ident.MemberEpoch // the Raft index of the join
	Node  ident.NodeID      // the gateway by which it came
	Since time.Time         // of the first join since it was last away
}

// Owner says to whom a partition belongs.
type Owner struct {
	Partition ident.Index
	Member    string           `json:",omitempty"` // empty: nobody, because there is no member
	Epoch     ident.Assignment // the Raft index of the change that gave it to this owner
	// Next is who gets it when the owner has released it; empty: it stays.
	Next string `json:",omitempty"`
	// Notice is the Raft index of the change that told the owner to give it up; 0: it was
	// not told. It may be taken back, and given again: that is another one.
	Notice uint64 `json:",omitempty"`
	// Released says that the owner before let go of it, or that there was none. If
	// not, its session ended with leases in hand.
	Released bool `json:",omitempty"`
}

// Member finds a member by its id.
func (g *Group) Member(id string) (*Member, bool) {
	for i := range g.Members {
		if g.Members[i].ID == id {
			return &g.Members[i], true
		}
	}
	return nil, false
}

// Owner finds what is known of a partition's owner; nil in shared mode.
func (g *Group) Owner(p ident.Index) *Owner {
	for i := range g.Owners {
		if g.Owners[i].Partition == p {
			return &g.Owners[i]
		}
	}
	return nil
}

// Span is the offsets from From up to, not including, To.
type Span struct{ From, To ident.Offset }

// Progress is how far a group has come on one partition.
type Progress struct {
	Partition ident.Index
	Start     ident.Offset // where it began: at its registration, or its last reset
	Floor     ident.Offset // everything below is done with, in one way or another
	Done      []Span       `json:",omitempty"` // above the floor: ascending, apart from one another
	Counts    []Count      `json:",omitempty"` // of records that are not done, by offset
	Intents   []Intent     `json:",omitempty"` // by sequence
	Sequence  int64        // of the next intent
	// Lost is how many offsets retention took before they were done with, since Start.
	Lost int64 `json:",omitempty"`
	// Dead, Skipped and Expired are what did not end as processed, as far as the log
	// still holds it: ascending, apart from one another.
	Dead    []Span `json:",omitempty"`
	Skipped []Span `json:",omitempty"`
	Expired []Span `json:",omitempty"`
}

// Count is how often a record was leased, from the second time on.
type Count struct {
	Offset     ident.Offset
	Deliveries int
}

// Intent is a record on its way to the dead-letter topic.
type Intent struct {
	Offset     ident.Offset
	Sequence   int64       // of the group's producer for the source partition
	Partition  ident.Index // of the dead-letter topic
	Deliveries int
	Reason     string
}
