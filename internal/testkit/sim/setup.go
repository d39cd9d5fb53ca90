package sim

import (
	"math/rand/v2"
	"time"

	"tidewire/internal/cluster"
)

// Setup are the constants of a run.
type Setup struct {
	Brokers, Partitions int
	Replicas, MinInsync int
	Unclean             bool // rather a replica that may lack records than none
	Replicated          bool // durability: what the page caches hold is acknowledged, but for a while now and then
	Reborn              bool // the topic is deleted now and then, and another of its name created
	Apart               bool // coordinators are processes of their own
	Producers, Readers  int
	NetMin, NetMax      time.Duration
	NetTail             float64 // how often a message takes much longer
	WriteMin, WriteMax  time.Duration
	SyncMin, SyncMax    time.Duration
	Lag, Lease          time.Duration
	PushBytes           int // what a partition adds to a message
	MessageBytes        int
	ReadBytes           int
	BatchRecords        int // at most
	Voids               int // batches of 40 that are of voids, and as many of too large records
	Think               time.Duration
	Timeout             time.Duration // of a producer's request
	ProposeLimit        time.Duration
	TryLimit            time.Duration // of one try of a proposal
	SnapEvery           int           // batches between producer states that are kept
	RetainBatches       int           // 0: everything is kept
	RetainAge           time.Duration
	Purges              bool          // somebody takes records out now and then
	CoordinatorLoses    float64       // answers, at any time
	ReplaceAfter        time.Duration // a dead broker's replicas are moved then
	Settled             time.Duration
	Length              time.Duration

	Groups                       int // 0: none, and nothing of what follows counts
	Members                      int // of each
	GroupLease, Session, Backoff time.Duration
	MaxDeliveries, MaxInFlight   int
	Gather                       time.Duration // between commits
	CommitBytes                  int           // of one group on one partition
}

// mayLose says that a run may lose what was committed, and goes on in another truth.
func (s *Setup) mayLose() bool { return s.Unclean || s.Replicated }

func (s *Setup) durability() cluster.Durability {
	if s.Replicated {
		return cluster.Replicated
	}
	return cluster.Fsync
}

// setup draws the constants of a seed.
func setup(rng *rand.Rand) Setup {
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(rng.Int64N(int64(hi-lo)+1)) }
	s := Setup{
		Brokers:      3 + rng.IntN(3),
		Partitions:   1 + rng.IntN(3),
		Replicas:     3,
		MinInsync:    2,
		Apart:        rng.IntN(3) == 0,
		Producers:    2 + rng.IntN(3),
		Readers:      1 + rng.IntN(3),
		NetMin:       50 * time.Microsecond,
		NetMax:       between(200*time.Microsecond, 3*time.Millisecond),
		NetTail:      0.02,
		WriteMin:     10 * time.Microsecond,
		WriteMax:     200 * time.Microsecond,
		SyncMin:      100 * time.Microsecond,
		SyncMax:      between(300*time.Microsecond, 8*time.Millisecond),
		Lag:          between(300*time.Millisecond, 2*time.Second),
		Lease:        between(500*time.Millisecond, 2*time.Second),
		PushBytes:    200 << rng.IntN(6),
		MessageBytes: 400 << rng.IntN(6),
		ReadBytes:    100 << rng.IntN(6),
		BatchRecords: 1 + rng.IntN(4),
		Think:        between(5*time.Millisecond, 60*time.Millisecond),
		Timeout:      between(300*time.Millisecond, 3*time.Second),
		ProposeLimit: between(500*time.Millisecond, 5*time.Second),
		TryLimit:     between(30*time.Millisecond, 500*time.Millisecond),
		SnapEvery:    5 + rng.IntN(40),
		ReplaceAfter: between(time.Second, 20*time.Second),
		Settled:      between(300*time.Millisecond, 3*time.Second),
		Length:       between(5*time.Second, 14*time.Second),
	}
	switch rng.IntN(10) {
	case 0:
		s.Replicas, s.MinInsync = 2, 1
	case 1:
		s.Replicas, s.MinInsync = 3, 1
	case 2:
		s.Replicas, s.MinInsync = 1, 1
	}
	if rng.IntN(2) == 0 {
		s.RetainBatches = 5 + rng.IntN(40)
		s.RetainAge = between(time.Second, 20*time.Second)
	}
	if rng.IntN(2) == 0 {
		s.CoordinatorLoses = 0.1
	}
	s.Voids = 1
	if rng.IntN(3) == 0 {
		s.Voids = 8
		s.SnapEvery = 2 + s.SnapEvery/5 // so that states are kept as of where voids stand
	}
	return s
}

// groups draws the constants of two consumer groups.
func (s *Setup) groups(rng *rand.Rand) {
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(rng.Int64N(int64(hi-lo)+1)) }
	s.Groups, s.Members = 2, 2+rng.IntN(3)
	s.GroupLease = between(200*time.Millisecond, 2*time.Second)
	s.Session = between(time.Second, 2*time.Second)
	s.Backoff = between(0, 200*time.Millisecond)
	s.MaxDeliveries, s.MaxInFlight = 1+rng.IntN(4), 1+rng.IntN(8)
	s.Gather = between(time.Millisecond, 15*time.Millisecond)
	s.CommitBytes = 1_000 << rng.IntN(6)
}
