package ident

import (
	"fmt"

	"github.com/google/uuid"
)

type (
	// TopicID names one life of a topic: a topic deleted and created again has
	// another id.
	TopicID uuid.UUID
	// ProducerID names one life of a producer.
	ProducerID uuid.UUID
	// NodeID names a node for as long as its data folder lives.
	NodeID uuid.UUID
	// StorageID names one data folder of a broker.
	StorageID uuid.UUID
	// ClusterID names a cluster from its founding on.
	ClusterID uuid.UUID
	// GroupID names one life of a consumer group.
	GroupID uuid.UUID
)

// Offset is the place of a record in its partition, from 0 without gaps.
type Offset int64

// Epoch counts the leaders of a partition, from 1.
type Epoch uint32

// BrokerEpoch is one process lifetime of a broker: the Raft index of its registration.
type BrokerEpoch uint64

// MemberEpoch is one life of a group's member: the Raft index of its join.
type MemberEpoch uint64

// Assignment is one ownership of a partition by a group's member: the Raft index of the
// change that began it.
type Assignment uint64

// Generation counts the layouts of a topic, from 1.
type Generation uint32

// Index is a partition's number inside its topic. Numbers are never reused.
type Index uint32

// Partition names one partition of one life of a topic.
type Partition struct {
	Topic TopicID
	Index Index
}

func (t TopicID) String() string    { return uuid.UUID(t).String() }
func (p ProducerID) String() string { return uuid.UUID(p).String() }
func (n NodeID) String() string     { return uuid.UUID(n).String() }
func (s StorageID) String() string  { return uuid.UUID(s).String() }
func (c ClusterID) String() string  { return uuid.UUID(c).String() }
func (g GroupID) String() string    { return uuid.UUID(g).String() }

// String is "<topic id>/<index>", as in log lines and folder names.
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Index) }

// IsZero reports whether no topic is named.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// IsZero reports whether no producer is named.
func (p ProducerID) IsZero() bool { return p == ProducerID{} }

// MarshalText writes the canonical UUID form.
func (t TopicID) MarshalText() ([]byte, error) { return uuid.UUID(t).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (t *TopicID) UnmarshalText(b []byte) error { return (*uuid.UUID)(t).UnmarshalText(b) }

// MarshalText writes the canonical UUID form.
func (n NodeID) MarshalText() ([]byte, error) { return uuid.UUID(n).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (n *NodeID) UnmarshalText(b []byte) error { return (*uuid.UUID)(n).UnmarshalText(b) }

// MarshalText writes the canonical UUID form.
func (s StorageID) MarshalText() ([]byte, error) { return uuid.UUID(s).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (s *StorageID) UnmarshalText(b []byte) error { return (*uuid.UUID)(s).UnmarshalText(b) }

// MarshalText writes the canonical UUID form.
func (c ClusterID) MarshalText() ([]byte, error) { return uuid.UUID(c).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (c *ClusterID) UnmarshalText(b []byte) error { return (*uuid.UUID)(c).UnmarshalText(b) }

// MarshalText writes the canonical UUID form.
func (g GroupID) MarshalText() ([]byte, error) { return uuid.UUID(g).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (g *GroupID) UnmarshalText(b []byte) error { return (*uuid.UUID)(g).UnmarshalText(b) }

// ParseProducerID reads a UUID in its canonical 36-character form.
func ParseProducerID(s string) (ProducerID, error) {
	if len(s) != 36 {
		return ProducerID{}, fmt.Errorf("a producer is a UUID such as 0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f, not %q", clip(s))
	}
	u, err := uuid.Parse(s)
	if err != nil {
		return ProducerID{}, fmt.Errorf("a producer is a UUID such as 0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f, not %q", clip(s))
	}
	if u == uuid.Nil {
		return ProducerID{}, fmt.Errorf("a producer is never the nil UUID")
	}
	return ProducerID(u), nil
}

// MaxSequence is the largest sequence of a producer: 2^53-1, exact in JavaScript.
const MaxSequence int64 = 1<<53 - 1

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
