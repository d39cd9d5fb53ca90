package cluster

import (
	"time"

	"github.com/google/uuid"

	"tidewire/internal/ident"
)

// RequestID names one intended change through all its tries, on whatever way they
// reach the coordinator: it is made at most once.
type RequestID uuid.UUID

// String is the canonical UUID form.
func (r RequestID) String() string { return uuid.UUID(r).String() }

// MarshalText writes the canonical UUID form.
func (r RequestID) MarshalText() ([]byte, error) { return uuid.UUID(r).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (r *RequestID) UnmarshalText(b []byte) error { return (*uuid.UUID)(r).UnmarshalText(b) }

// FieldLeader is the field of a fault.CoordinatorUnavailable in which a coordinator
// that does not lead names the one that does, as far as it knows: the text of its
// node id. FieldKept says "no" where the change is certainly in no log.
const (
	FieldLeader = "leader"
	FieldKept   = "kept"
)

// Join asks the leading coordinator to take a coordinator in, or to note that it is
// reached at another address. It is repeated until the answer says Voter: each one
// says how far the log of who asks has come.
type Join struct {
	Node ident.NodeID
	Raft string // the address at which others reach its raft
	// Cluster is the one that the data folder belongs to; zero: none yet.
	Cluster ident.ClusterID
	// Last is the last entry of its log. 0 says that it holds nothing, and so does
	// not know what it voted for in a former life.
	Last uint64
}

// Joined answers a Join.
type Joined struct {
	Cluster ident.ClusterID
	Voter   bool // it counts for the majority; there is nothing more to ask for
}

// Message is one of the change feed. The first ones of a stream carry the whole
// state, unless the reader has it already; one without News is a beat. News of which
// there is much come in parts.
type Message struct {
	News *Delta `json:",omitempty"`
	// Index is the newest that the sender has applied.
	Index uint64
	// Leader is the leading coordinator as the sender knows it; zero: none.
	Leader ident.NodeID
	// Heard is how long ago the sender last heard its leader; 0 where it leads.
	Heard time.Duration
}

// Outcome is what came of probing a node: a connection to it, and a word on it.
type Outcome uint8

const (
	Silent   Outcome = iota // no answer in time
	Answered                // the node of that id answered, in that life
	Refused                 // nobody listens at its address, or another life does
)
