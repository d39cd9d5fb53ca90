package load

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/figure"
)

// Groups is a load of a consumer group whose members work through a backlog.
type Groups struct {
	Target   Target
	Topic    string
	Group    string
	Mode     string // exclusive or shared
	Records  int    // of the backlog, as Publish.Fill made it
	Members  int    // a connection each
	InFlight int    // of each member
	Batch    int    // records of an acknowledgement, at most
}

// GroupRun is one group's way through the backlog. A message is an acknowledged record, a
// latency the time until an acknowledgement is confirmed; duplicates are deliveries of a
// record that was delivered before.
type GroupRun struct {
	figure.Run
	Acks    int64   `json:"acknowledgements"`
	Stale   int64   `json:"stale"` // records whose acknowledgement was not taken
	Entries float64 `json:"raft_entries_per_second"`
	Commits float64 `json:"commits_per_second"` // of all brokers
}

// Run has the members join, and measures from the moment all have until every record is
// acknowledged.
func (w Groups) Run(ctx context.Context, number int, p Progress) (GroupRun, error) {
	crew, err := newCrew(ctx, w.Members, 0)
	if err != nil {
		return GroupRun{}, err
	}
	defer crew.stop()
	k, seen := newClock(), newLedger(w.Records)
	recs := newRecorders(crew)
	members := make([]*member, w.Members)
	err = crew.each(w.Members, "joining members", p, func(i int) error {
		members[i] = newMember(w, crew, k, recs[i%len(recs)], seen)
		return members[i].open(w.Target.turn(i), crew.loops[i%len(crew.loops)])
	})
	if err != nil {
		return GroupRun{}, err
	}
	m := &meter{crew: crew, recs: recs, pids: w.Target.PIDs()}
	before, err := countGroups(ctx, w.Target)
	if err != nil {
		return GroupRun{}, err
	}
	self, server, err := m.sample()
	if err != nil {
		return GroupRun{}, err
	}
	began := time.Now()
	for _, x := range members {
		if err := x.begin(w.InFlight); err != nil {
			return GroupRun{}, err
		}
	}
	p.Phase(fmt.Sprintf("run %d", number), w.Records)
	if err := crew.reach(int64(w.Records), seen.done.Load, "acknowledged", p); err != nil {
		return GroupRun{}, err
	}
	took, count := time.Since(began), m.take()
	selfAfter, serverAfter, err := m.sample()
	if err != nil {
		return GroupRun{}, err
	}
	after, err := countGroups(ctx, w.Target)
	if err != nil {
		return GroupRun{}, err
	}
	used := serverAfter.Sub(server)
	run := figure.NewRun(number, took, count, &used, selfAfter.Sub(self))
	if len(m.pids) == 0 {
		run.Server = nil
	}
	rate := func(n float64) float64 { return math.Round(10*n/took.Seconds()) / 10 }
	return GroupRun{
		Run: run, Acks: seen.answers.Load(), Stale: seen.stale.Load(),
		Entries: rate(after.entries - before.entries), Commits: rate(after.commits - before.commits),
	}, nil
}

// groupCount is what a cluster has counted so far.
type groupCount struct {
	entries float64 // of Raft's log
	commits float64 // of what consumers acknowledged, of all brokers
}

func countGroups(ctx context.Context, t Target) (c groupCount, err error) {
	for i := range len(t.Beside) + 1 {
		all, err := readMetrics(ctx, t.turn(i))
		if err != nil {
			return c, err
		}
		c.entries = max(c.entries, all["coordinator_raft_log_index"])
		c.commits += all["broker_group_commits_total"]
	}
	return c, nil
}

// RaftEntries is the last index of the coordinators' log.
func RaftEntries(ctx context.Context, t Target) (float64, error) {
	c, err := countGroups(ctx, t)
	return c.entries, err
}

// ledger knows of every record of a backlog whether it was delivered and acknowledged.
type ledger struct {
	delivered, acked []atomic.Uint64
	records          int64
	done             atomic.Int64
	answers          atomic.Int64
	stale            atomic.Int64
}

func newLedger(records int) *ledger {
	words := (records + 63) / 64
	return &ledger{delivered: make([]atomic.Uint64, words), acked: make([]atomic.Uint64, words), records: int64(records)}
}

// mark notes a number. False: it was noted.
func mark(set []atomic.Uint64, n int64) bool {
	bit := uint64(1) << (n & 63)
	return set[n>>6].Or(bit)&bit == 0
}
