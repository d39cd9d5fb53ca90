package rpc

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Bounds of what one call about groups may name or give.
const (
	MaxTaken       = 10_000                 // leases of a Taken
	MaxSettled     = 10_000                 // partitions and offsets of a Settle, all together
	MaxReasonBytes = cluster.MaxReasonBytes // of a Reject
	MaxStandings   = 10_000                 // groups times partitions of a StandingsOf
)

// Hearing says which answers to its takes a taker, who is a gateway, has had of a partition's
// leader: what was leased in one that was lost never reached anybody. The takes of one member
// are numbered by the gateway, ascending, and made one after the other.
type Hearing struct {
	Taker uint64 // the gateway's process; 0: it does not say, and passes for having heard all
	Call  uint64 // the takes below it are over: their answers came, or will not come any more. A take names itself
	Heard uint64 // the latest with leases of the partition of which the answer came
}

// Take asks a broker for records to be leased to a member, of partitions that it leads.
// Who calls routed by the snapshot at Index: the broker acts on that first.
type Take struct {
	cluster.MemberLife
	Index      uint64
	Partitions []ident.Partition
	// Limit is how many records there may be, and MaxBytes about how much of them; one
	// comes however large. With Limit 0 nothing is leased: the answer comes once
	// something could be.
	Limit    int
	MaxBytes int
	Wait     time.Duration // for records to take, where there are none

	Taker, Call uint64   // as in Hearing
	Heard       []uint64 // of each partition; nil: 0 of all
}

// Lookout is a Take with Limit 0 under way, in the same process: its caller looks himself
// whenever he is told that there may be something. It may be used by one goroutine at a time.
type Lookout interface {
	// Look is what the Take would answer now; false: it would wait. It is looked at once in
	// any case.
	Look() (Taken, bool)
	// Leave ends it. Only the first one counts.
	Leave()
}

// Hearing is what a take says of one of its partitions, by its place.
func (t *Take) Hearing(i int) Hearing {
	h := Hearing{Taker: t.Taker, Call: t.Call}
	if i < len(t.Heard) {
		h.Heard = t.Heard[i]
	}
	return h
}

// Taken answers a Take: of each partition that it named what was leased there.
type Taken struct {
	Of []TakenOf
	// More says that there is something to take that did not fit: with Limit 0, anything.
	More bool
	Held int // how many records the member holds now, of the partitions that were named
}

// TakenOf is one partition's part of a Taken: either Err, or leases in the order in
// which they are to be worked on. Each lease's record is in Batches, which hold other
// records as well.
type TakenOf struct {
	Partition ident.Partition
	Batches   []byte // back to back, by offset, perhaps without what is not leased of them; immutable
	Leases    []Lease
	Err       error // a *fault.Error
}

// Lease is a record in a member's hands.
type Lease struct {
	Offset   ident.Offset
	Delivery int           // 1, 2, …
	Left     time.Duration // from the answer on
}

// Settle says what a member has done with records of its leases. Index as in Take.
type Settle struct {
	cluster.MemberLife
	Index uint64
	Of    []SettleOf

	Taker, Call uint64 // as in Hearing
}

// SettleOf is one partition's part of a Settle.
type SettleOf struct {
	Partition ident.Partition
	Ack       []ident.Offset
	Through   ident.Offset // with all that is leased to the member up to it, unless it is below 0
	Nack      []Nack
	Extend    []ident.Offset
	Reject    []Reject
	Heard     uint64 // as in Hearing
}

// Check says what is wrong with a Settle as such: what the server refuses, and the broker
// that is asked without one.
func (s *Settle) Check() error {
	entries := len(s.Of)
	for i := range s.Of {
		of := &s.Of[i]
		entries += len(of.Ack) + len(of.Nack) + len(of.Extend) + len(of.Reject)
		for _, r := range of.Reject {
			if len(r.Reason) > MaxReasonBytes {
				return fault.New(fault.Invalid, "a reason of %d bytes; %d are allowed", len(r.Reason), MaxReasonBytes).With("field", "reason")
			}
		}
	}
	if entries > MaxSettled {
		return fault.New(fault.Invalid, "%d partitions and offsets at once; %d are allowed: send the rest in another call", entries, MaxSettled)
	}
	return nil
}

// Nack gives a record back. A delay below 0 is the group's backoff.
type Nack struct {
	Offset ident.Offset
	Delay  time.Duration
}

// Reject declares a record dead.
type Reject struct {
	Offset ident.Offset
	Reason string
}

// Settled answers a Settle, once the coordinator holds what it said: of each partition
// either Err, where nothing of its part was taken, or what was not taken of it.
type Settled struct{ Of []SettledOf }

// SettledOf is one partition's part of a Settled.
type SettledOf struct {
	Partition ident.Partition
	Stale     []Stale
	Extended  []Extended
	Err       error // a *fault.Error
}

// Extended is a lease that was extended.
type Extended struct {
	Offset ident.Offset
	Left   time.Duration // from the answer on
}

// Pass lets time go by for leases that were extended.
func Pass(all []Extended, d time.Duration) {
	for i := range all {
		all[i].Left = max(0, all[i].Left-d)
	}
}

// Stale is an entry of a Settle that was not taken, and why.
type Stale struct {
	Offset ident.Offset
	Err    error // a *fault.Error
}

// StandingsOf asks how groups stand on partitions that the broker leads. Index as in Take.
// What it does not lead, and groups that are not there, are left out of the answer.
type StandingsOf struct {
	Index      uint64
	Groups     []ident.GroupID
	Partitions []ident.Partition
}

// GroupStanding is how a group stands on one partition.
type GroupStanding struct {
	Group     ident.GroupID
	Partition ident.Partition
	Committed ident.Offset // the floor
	End       ident.Offset // the high watermark
	InFlight  int
	// Lag counts the records below End that are not done, however they end.
	Lag int64
	// Oldest is the time of the oldest record that was leased and is not done, to the
	// millisecond; zero: none.
	Oldest      time.Time
	Redelivered int64 // leases given from the second on, since this leader leads
	Dead        int64 // records that are dead, of those that the log still holds
	Expired     int64 // offsets that retention took before they were done, since the group's start
	Paused      bool  // too many unfinished records: nothing new is read
}

// RecordStatusOf asks what became of a record in each group of its topic. Index as in Take.
type RecordStatusOf struct {
	Index     uint64
	Partition ident.Partition
	Offset    ident.Offset
}

// RecordState is what became of a record in a group.
type RecordState string

const (
	Received  RecordState = "received" // waits for its delivery, or for its next one
	InFlight  RecordState = "in-flight"
	Processed RecordState = "processed"
	DeadState RecordState = "dead"
	Skipped   RecordState = "skipped" // before the group's start, or passed over by a reset
	Expired   RecordState = "expired" // retention came first
)

// RecordStatus is what became of one record in one group.
type RecordStatus struct {
	Group    ident.GroupID
	State    RecordState
	Member   string        // in flight: in whose hands
	Left     time.Duration // in flight: of the lease
	Delivery int           // how often it was leased; 0: never, or not known any more
}
