package cluster

import (
	"time"

	"tidewire/internal/ident"
)

// Bounds of groups. All of them but the last hold for the whole cluster.
const (
	MaxGroups          = 50_000
	MaxGroupPartitions = 1_000_000 // partitions of all groups' topics, each counted once a group
	MaxMembers         = 100_000
	MaxGroupMembers    = 1_000
)

// Bounds of what one change may name.
const (
	MaxCommitBytes = 64 << 10 // of a Commit as it is kept
	MaxLapse       = 1_000    // members of a Lapse
	MaxRelease     = 1_000    // partitions of a Release
	MaxSigns       = 10_000   // signs of life sent at once
	MaxReasonBytes = 512      // of an Intent's reason; what is longer is cut
)

// GroupPatch gives settings of a group; a nil field stays as it is, or means its default.
type GroupPatch struct {
	Mode          *GroupMode // only of a registration
	Lease         *time.Duration
	Session       *time.Duration
	MaxDeliveries *int
	Backoff       *time.Duration
	DeadLetter    *string
	MaxInFlight   *int
}

// Position is an offset of one partition.
type Position struct {
	Partition ident.Index
	Offset    ident.Offset
	// Epoch is the leader epoch in which it was there; 0: not known. It may be gone where an
	// unclean election came since.
	Epoch ident.Epoch `json:",omitempty"`
}

// GroupRegister makes a group, or finds the one of that name equal in every setting that
// was given. ID is a random one chosen by who asks; it is used only if the group does not
// exist yet. Starts has one entry for each partition of the topic.
type GroupRegister struct {
	ID     ident.GroupID
	Topic  ident.TopicID
	Name   string
	Patch  GroupPatch
	Starts []Position
}

// GroupAlter changes settings of a group.
type GroupAlter struct {
	Group ident.GroupID
	Patch GroupPatch
}

// GroupDelete forgets a group, with its members and its progress.
type GroupDelete struct{ Group ident.GroupID }

// GroupReset moves a group to other offsets on the partitions named. It is refused while
// the group has members, unless Force is set: then their lives are over with it, so that
// nothing they hold can be taken for a lease of after it, whoever leads.
type GroupReset struct {
	Group  ident.GroupID
	Starts []Position
	Force  bool `json:",omitempty"`
}

// MemberJoin begins a life of a member. The former one, if there is one, is over.
type MemberJoin struct {
	Group  ident.GroupID
	Member string
	Node   ident.NodeID
}

// MemberLife is one life of one member.
type MemberLife struct {
	Group  ident.GroupID
	Member string
	Epoch  ident.MemberEpoch
}

// MemberLeave ends a life of a member, who has let go of all it had. It is refused where
// that life is over already.
type MemberLeave struct{ MemberLife }

// MemberLapse ends lives of members whose sessions are over. A life that is over already
// is passed over.
type MemberLapse struct{ Lives []MemberLife }

// Release lets go of partitions that are to go to another owner. A part counts where
// Epoch and Notice are the partition's own and there is a next owner.
type Release struct{ Of []ReleaseOf }

// ReleaseOf is one partition's part of a Release.
type ReleaseOf struct {
	Group     ident.GroupID
	Partition ident.Index
	Epoch     ident.Assignment
	// Notice is which of the owner's it follows: after one that was taken back records
	// were leased again, of which this knows nothing.
	Notice uint64 `json:",omitempty"`
	// Drained says that nothing of the partition is leased any more, to whomever: only
	// its leader knows. A member that lets go speaks of its own leases alone.
	Drained bool `json:",omitempty"`
}

// Clamp sets groups back to where partitions ended when leaders took over that may lack
// what was committed. What groups counted from there on is of records that are no more,
// and what was leased of them as well: the lives of all members are over.
type Clamp struct {
	Leader Life // the broker that leads all of them
	Of     []ClampOf
}

// ClampOf is one partition's part of a Clamp, taken where the leader and Epoch are the
// partition's own and it is not clamped.
type ClampOf struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	End       ident.Offset // where the partition's Unclamped epoch began
}

// Clamped is a group that a Clamp set back.
type Clamped struct {
	Partition ident.Partition
	Group     string
	From, To  ident.Offset // its floor, and the first record that is given again
}

// MaxClamped is how many groups an Answer names.
const MaxClamped = 64

// Commit keeps what members have done, as the leaders of their partitions say.
type Commit struct {
	Leader Life // the broker that leads all of them
	Of     []CommitOf
}

// CommitOf is one partition's part of a Commit, and in shared mode one member's part of
// that. It is taken where all epochs are the current ones. What it says of done and dead
// records is united with what is known: the floor is the first record that is neither.
// To say it twice changes nothing more.
type CommitOf struct {
	Group     ident.GroupID
	Partition ident.Index
	Leader    ident.Epoch // of the partition
	Reset     uint64
	// Assignment is the owner's, in exclusive mode. Member and Epoch name whose
	// acknowledgements these are, in shared mode. What no member is part of comes in a
	// part with neither: Published, Intents, Counts, Start, and as Done the offsets that
	// hold no record.
	Assignment ident.Assignment  `json:",omitempty"`
	Member     string            `json:",omitempty"`
	Epoch      ident.MemberEpoch `json:",omitempty"`

	Done      []Span         `json:",omitempty"` // acknowledged
	Counts    []Count        `json:",omitempty"` // as they are now
	Intents   []Intent       `json:",omitempty"` // new ones, by sequence
	Published []ident.Offset `json:",omitempty"` // whose intents were carried out: they are dead
	// Start is the partition's log start: what is below and was not done is expired,
	// and of what lies below nothing is remembered.
	Start ident.Offset `json:",omitempty"`
}

// SignOfLife says how long ago a member was heard, counted back from when it was sent.
type SignOfLife struct {
	MemberLife
	Ago time.Duration
}

// Lost answers signs of life: those of lives that are over, by their places in what was
// sent.
type Lost struct{ Lives []int }

// ProgressOf asks what groups have done on a partition, as of the Raft index After or a
// later one.
type ProgressOf struct {
	Partition ident.Partition
	After     uint64
	Groups    []ident.GroupID // at most MaxProgress; those that are not there are left out
	// Dying asks instead for those with records whose letters are on their way, by their ids
	// from the first after Beyond on, at most MaxProgress of them and without their progress.
	Dying  bool
	Beyond ident.GroupID
}

// MaxProgress is how many groups' progress is asked for at once.
const MaxProgress = 256

// GroupProgress is one group's progress on the partition that was asked for.
type GroupProgress struct {
	Group ident.GroupID
	Reset uint64
	Progress
}
