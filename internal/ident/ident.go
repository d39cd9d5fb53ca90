package ident

import (
	"crypto/sha256"
	"encoding/binary"
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

// ParseProducerID reads a UUID in its canonical 36-character form, as clients give it.
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
	if ProducerID(u).System() {
		return ProducerID{}, fmt.Errorf("UUIDs of version 8 are the cluster's own producers; take one of version 4 or 7")
	}
	return ProducerID(u), nil
}

// SystemProducer is who publishes the dead letters of a group from one of its topic's
// partitions: a UUID of version 8 made of both. No client may use one of that version.
func SystemProducer(g GroupID, p Index) (id ProducerID) {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32(g[:], uint32(p)))
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x80 // the version
	id[8] = id[8]&0x3f | 0x80 // the variant
	return id
}

// System says that a producer is the cluster's own.
func (p ProducerID) System() bool { return p[6]>>4 == 8 && p[8]>>6 == 2 }

// MaxSequence is the largest sequence of a producer: 2^53-1, exact in JavaScript.
const MaxSequence int64 = 1<<53 - 1

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
