package cluster

import (
	"time"

	"tidewire/internal/ident"
)

// Durability is what a producer's acknowledgement with acks=all promises.
type Durability string

const (
	// Fsync: on disk on every in-sync replica.
	Fsync Durability = "fsync"
	// Replicated: written by every in-sync replica, perhaps only to its page cache.
	Replicated Durability = "replicated"
)

// Bounds and defaults of the settings of a topic.
const (
	MaxPartitions            = 256
	DefaultMessageBytes      = 1 << 20
	MaxMessageBytes          = 16 << 20
	MinMessageBytes          = 1
	DefaultRetentionAge      = 168 * time.Hour
	MinRetentionAge          = time.Millisecond
	DefaultIdempotencyWindow = 2 * time.Minute
	MaxIdempotencyWindow     = 24 * time.Hour
	MinRetentionBytes        = 1
)

// Settings of a topic, all of them filled in.
type Settings struct {
	Replicas          int
	MinInsync         int
	RetentionAge      time.Duration // 0: for ever
	RetentionBytes    int64         // a partition; 0: no bound
	MaxMessageBytes   int           // key, value and headers of one record
	Durability        Durability
	Unclean           bool
	IdempotencyWindow time.Duration
}

// TopicSpec asks for a topic. A nil field was not given and means its default.
type TopicSpec struct {
	Name       string
	Partitions *int // 1
	SettingsPatch
}

// SettingsPatch changes settings; a nil field stays as it is.
type SettingsPatch struct {
	Replicas          *int
	MinInsync         *int
	RetentionAge      *time.Duration
	RetentionBytes    *int64
	MaxMessageBytes   *int
	Durability        *Durability
	Unclean           *bool
	IdempotencyWindow *time.Duration
}

// PartitionState says whether a partition takes records.
type PartitionState string

const (
	Open    PartitionState = "open"
	Sealing PartitionState = "sealing"
	Sealed  PartitionState = "sealed"
)

// Partition is one partition as the coordinator knows it.
type Partition struct {
	Index    ident.Index
	Range    ident.HashRange
	Parents  []ident.Index
	Children []ident.Index
	State    PartitionState
	Replicas []ident.NodeID // the first one is to lead, where it can
	ISR      []ident.NodeID
	// ELR lists the eligible leader replicas: they left the ISR when that fell
	// below min_insync, so they hold all that is committed. Empty otherwise.
	ELR []ident.NodeID `json:",omitempty"`
	// Adding and Removing are a move under way: of Replicas, those that came for
	// it, and those that go once all of Adding are in sync.
	Adding      []ident.NodeID `json:",omitempty"`
	Removing    []ident.NodeID `json:",omitempty"`
	Leader      ident.NodeID   // zero: none
	LeaderEpoch ident.Epoch
	// Unclean is the latest leader epoch that began with a leader which may lack
	// committed records, because nobody who had them was left. Only across it
	// may a replica cut its log below its high watermark. Without a leader it may be the
	// next epoch: whoever is left to lead may lack them. 0: never.
	Unclean ident.Epoch `json:",omitempty"`
	// Unclamped is the first leader epoch that may lack what consumer groups have counted,
	// of those since the latest Clamp. Nothing is given to a group before the leader has
	// said where that epoch began. 0: there is none.
	Unclamped ident.Epoch `json:",omitempty"`
	// Purged is where the partition begins by hand: what lies below is served to nobody,
	// whatever a log still holds. Logs may begin behind it, by retention. While the
	// partition is not clamped it counts up to where the Unclamped epoch began.
	Purged  ident.Offset `json:",omitempty"`
	Version uint64       // bumped with every change of replicas, ISR, leader, state
}

// Topic is one life of a topic.
type Topic struct {
	ID         ident.TopicID
	Name       string
	Settings   Settings
	Generation ident.Generation
	Partitions []Partition // by Index, ascending
	Created    time.Time
	// Volatile are the nodes that may have acknowledged records from memory, before the
	// topic's durability became another, and whose machines have had no other life since.
	Volatile []ident.NodeID `json:",omitempty"`
	Modified uint64         // Raft index of the last change of anything here
}

// Partition finds a partition by its number.
func (t *Topic) Partition(i ident.Index) (*Partition, bool) {
	// Numbers are dense until a removed partition leaves a hole; then the
	// slice is shorter than the number and a search is needed.
	if int(i) < len(t.Partitions) && t.Partitions[i].Index == i {
		return &t.Partitions[i], true
	}
	for k := range t.Partitions {
		if t.Partitions[k].Index == i {
			return &t.Partitions[k], true
		}
	}
	return nil, false
}

// Ref names one of the topic's partitions.
func (t *Topic) Ref(i ident.Index) ident.Partition {
	return ident.Partition{Topic: t.ID, Index: i}
}
