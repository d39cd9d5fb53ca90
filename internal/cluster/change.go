package cluster

import (
	"time"

	"tidewire/internal/ident"
)

// Change asks the coordinator for one change of what it holds: exactly one of the
// pointers is set. It is what every role says to the coordinator, wherever that is.
type Change struct {
	Register *Register `json:",omitempty"`
	Activate *Activate `json:",omitempty"`
	Expire   *Expire   `json:",omitempty"`
	Insync   *Insync   `json:",omitempty"`
	Unfit    *Unfit    `json:",omitempty"`
	Elect    *Elect    `json:",omitempty"`
	Move     *Move     `json:",omitempty"`
	Drain    *Drain    `json:",omitempty"`
	Retire   *Retire   `json:",omitempty"`
	Create   *Create   `json:",omitempty"`
	Alter    *Alter    `json:",omitempty"`
	Delete   *Delete   `json:",omitempty"`
	Purge    *Purge    `json:",omitempty"`

	GroupRegister *GroupRegister `json:",omitempty"`
	GroupAlter    *GroupAlter    `json:",omitempty"`
	GroupDelete   *GroupDelete   `json:",omitempty"`
	GroupReset    *GroupReset    `json:",omitempty"`
	MemberJoin    *MemberJoin    `json:",omitempty"`
	MemberLeave   *MemberLeave   `json:",omitempty"`
	MemberLapse   *MemberLapse   `json:",omitempty"`
	Release       *Release       `json:",omitempty"`
	Clamp         *Clamp         `json:",omitempty"`
	Commit        *Commit        `json:",omitempty"`
}

// Bounds of what one change may name. What is more goes into several: the
// partitions of a Register that do not fit are said with Unfit before the Activate.
const (
	MaxParts = 1_000 // of an Insync, Elect, Move or Purge
	MaxUnfit = 4_000 // partitions of a Register or Unfit
	MaxNodes = 1_000 // of the cluster; also lives of an Expire
)

// Kind names what the change does, for metrics and messages.
func (c *Change) Kind() string {
	for _, k := range c.kinds() {
		if k.set {
			return k.name
		}
	}
	return "none"
}

// OnFeed says whether what the change does is on the change feed: whoever has its answer
// finds it there. What groups have done is not.
func (c *Change) OnFeed() bool { return c.Commit == nil }

// Count says how many changes it is: one, if it is well formed.
func (c *Change) Count() int {
	n := 0
	for _, k := range c.kinds() {
		if k.set {
			n++
		}
	}
	return n
}

type kind struct {
	name string
	set  bool
}

func (c *Change) kinds() [23]kind {
	return [...]kind{
		{"register", c.Register != nil},
		{"activate", c.Activate != nil},
		{"expire", c.Expire != nil},
		{"insync", c.Insync != nil},
		{"unfit", c.Unfit != nil},
		{"elect", c.Elect != nil},
		{"move", c.Move != nil},
		{"drain", c.Drain != nil},
		{"retire", c.Retire != nil},
		{"create", c.Create != nil},
		{"alter", c.Alter != nil},
		{"delete", c.Delete != nil},
		{"purge", c.Purge != nil},
		{"group-register", c.GroupRegister != nil},
		{"group-alter", c.GroupAlter != nil},
		{"group-delete", c.GroupDelete != nil},
		{"group-reset", c.GroupReset != nil},
		{"member-join", c.MemberJoin != nil},
		{"member-leave", c.MemberLeave != nil},
		{"member-lapse", c.MemberLapse != nil},
		{"release", c.Release != nil},
		{"clamp", c.Clamp != nil},
		{"commit", c.Commit != nil},
	}
}

// Register begins a new life of a node. State, Since, BrokerEpoch, Activated, Ended
// and Heir of the node are decided by the coordinator, whatever the change says. The
// life counts from Activate on; the former one is over with this.
type Register struct {
	Node Node
	// Last is the broker epoch that the node's data folder has noted last; 0: none.
	// Another one than the coordinator knows says that the folder is an older
	// copy: what it lacks was acknowledged.
	Last ident.BrokerEpoch
	// Unfit are the partitions whose logs ended below a durable mark, or are
	// damaged: the node may have lost what it acknowledged there.
	Unfit []ident.Partition `json:",omitempty"`
}

// Activate says that the node has noted its broker epoch and serves from now on.
type Activate struct {
	Node  ident.NodeID
	Epoch ident.BrokerEpoch
}

// Life is one life of a node.
type Life struct {
	Node  ident.NodeID
	Epoch ident.BrokerEpoch
}

// Expire declares lives of nodes over: they leave the ISRs of partitions that have
// a leader, and what they led gets another. A life that is over already, or was
// followed by another, is passed over.
type Expire struct{ Lives []Life }

// Insync is what a leader wants its partitions' ISRs to be.
type Insync struct {
	Leader Life
	Of     []InsyncOf
}

// InsyncOf is one partition's part of an Insync. It is taken where Version and Epoch
// are the partition's own, the sender leads it, and every life that joins is the
// latest of its node. Members that stay need no epoch.
type InsyncOf struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	Version   uint64
	ISR       []Life
}

// Unfit takes a node out of the ISR and ELR of partitions whose records it may
// have lost. Where it is the last of both it stays: nobody else has anything.
type Unfit struct {
	Life       Life
	Partitions []ident.Partition
}

// Elect gives partitions other leaders.
type Elect struct{ Of []ElectOf }

// ElectOf is one partition's part of an Elect. It is taken where Version is the
// partition's own and the new leader is alive and in the ISR, or, if Takeover is set,
// in the ELR: then the ISR is the new leader alone, and those that were in it stay
// electable.
type ElectOf struct {
	Partition ident.Partition
	Version   uint64
	Leader    ident.NodeID
	Takeover  bool `json:",omitempty"`
	// Unclean is asked for by a leader that nobody else is in sync with, or electable, and
	// whose log is damaged: the new leader lacks what cannot be read there. It is the life
	// in which that one has got all the rest, and is taken where the topic allows unclean
	// elections.
	Unclean ident.BrokerEpoch `json:",omitempty"`
}

// Move begins to replace replicas of partitions: those that come catch up first,
// then those that go leave, and those that came take their places. None of both cancels a
// move under way, unless First asks for something else.
type Move struct{ Of []MoveOf }

// MoveOf is one partition's part of a Move, taken where Version is the partition's own.
type MoveOf struct {
	Partition ident.Partition
	Version   uint64
	Add       []ident.NodeID `json:",omitempty"`
	Remove    []ident.NodeID `json:",omitempty"`
	// First is a replica that is to lead from now on, where it can: it changes
	// places with the first one, at once and without a copy of anything. It comes alone.
	First ident.NodeID `json:",omitzero"`
}

// Drain takes the leadership of everything off a node, for as long as it lives or
// until it is cancelled.
type Drain struct {
	Node   ident.NodeID
	Cancel bool `json:",omitempty"`
}

// Retire forgets a node that is dead and holds nothing any more.
type Retire struct{ Node ident.NodeID }

// Create makes a topic. ID is a random one chosen by who asks; it is used only if
// the topic does not exist yet.
type Create struct {
	ID   ident.TopicID
	Spec TopicSpec
}

// Alter changes settings of a topic.
type Alter struct {
	Name  string
	Patch SettingsPatch
}

// Delete ends one life of a topic.
type Delete struct{ Name string }

// Purge moves the beginnings of partitions up. They never go back.
type Purge struct{ Of []PurgeOf }

// PurgeOf is one partition's part of a Purge. It is taken where Epoch is the partition's
// own and it is clamped: its leader has said in that epoch that everything below Before
// is committed, so every later leader has it but for one of an unclean election.
type PurgeOf struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	Before    ident.Offset // the first offset that is kept
}

// Answer says what a change did.
type Answer struct {
	Index   uint64            // of the entry that first carried the request
	Created bool              `json:",omitempty"` // Create made a topic, GroupRegister a group; false: it was there already
	Epoch   ident.BrokerEpoch `json:",omitempty"` // of a Register
	// Topic as the change left it; for a repeated request as it is now, nil if it
	// has gone since.
	Topic *Topic `json:",omitempty"`
	// Taken has an entry for each part of an Insync, Elect, Move, Purge, Release, Clamp or Commit:
	// false where what it rested on is over.
	Taken   []bool   `json:",omitempty"`
	Refusal *Refusal `json:",omitempty"` // the change changed nothing, and why
	// Group as a GroupRegister, GroupAlter, GroupReset or MemberJoin left it; for a
	// repeated request as it is now, nil if it has gone since.
	Group *Group `json:",omitempty"`
	// Member is the epoch of a MemberJoin.
	Member ident.MemberEpoch `json:",omitempty"`
	// Clamped names the groups that a Clamp set back, the first MaxClamped of them.
	Clamped []Clamped `json:",omitempty"`
}

// Renewal asks for a broker's lease.
type Renewal struct {
	Life Life
	Full bool // its disk takes no records at the moment
}

// Lease is what the leading coordinator grants a life. It counts from the moment
// at which its renewal was sent, by the clock of who sent it.
type Lease struct {
	For time.Duration
	// Index is the latest change of a Snapshot that anybody can have heard of when the
	// renewal came; see Leases.
	Index uint64
	// Leader is the coordinator that granted it, and Suspects the nodes whose lives
	// it doubts at the moment: what GET /nodes/ tells on every node.
	Leader   ident.NodeID
	Suspects []ident.NodeID `json:",omitempty"`
}

// Suspicion tells the leading coordinator that a node may be dead.
type Suspicion struct {
	From ident.NodeID
	Life Life // of the suspect
	// Refused says that a connection was refused, not only lost: nobody listens
	// at its address.
	Refused bool
}
