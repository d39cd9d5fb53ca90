package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"tidewire/broker/link"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

var self = ident.NodeID{0xee}

// council is a coordinator of one group on one partition, as far as a broker needs it.
type council struct {
	mu       sync.Mutex
	snap     *cluster.Snapshot
	newer    chan struct{}
	progress cluster.Progress
}

func newCouncil(group *cluster.Group) *council {
	c := &council{newer: make(chan struct{}), snap: &cluster.Snapshot{
		Index: 7, Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}, Deleted: map[ident.TopicID]uint64{},
		Groups: map[ident.TopicID]*cluster.GroupTable{group.Topic: (*cluster.GroupTable)(nil).With(group)},
	}}
	c.topic(group.Topic, "orders", 1<<20, 1)
	return c
}

// topic makes a topic of one partition, or begins a leader epoch of it.
func (c *council) topic(id ident.TopicID, name string, most int, epoch ident.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := *c.snap
	s.Index++
	t := &cluster.Topic{
		ID: id, Name: name, Generation: 1, Modified: s.Index, Settings: cluster.Settings{Replicas: 1, MinInsync: 1, MaxMessageBytes: most, Durability: cluster.Fsync},
		Partitions: []cluster.Partition{{
			Range: ident.FullRange, State: cluster.Open, Leader: self, LeaderEpoch: epoch, Version: uint64(epoch), Replicas: []ident.NodeID{self}, ISR: []ident.NodeID{self},
		}},
	}
	s.Topics, s.ByID = maps.Clone(s.Topics), maps.Clone(s.ByID)
	s.Topics[name], s.ByID[id] = t, t
	c.snap = &s
	close(c.newer)
	c.newer = make(chan struct{})
}

func (c *council) latest() (*cluster.Snapshot, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap, c.newer
}

func (c *council) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	for {
		s, newer := c.latest()
		if s.Index > after {
			return s, nil
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *council) Report(context.Context, cluster.Suspicion) error { return nil }

func (c *council) Progress(context.Context, cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []cluster.GroupProgress
	for _, table := range c.snap.Groups {
		for g := range table.All() {
			all = append(all, cluster.GroupProgress{Group: g.ID, Progress: c.progress})
		}
	}
	return all, nil
}

func (c *council) Propose(_ context.Context, change cluster.Change) (cluster.Answer, error) {
	switch {
	case change.Create != nil:
		c.topic(change.Create.ID, change.Create.Spec.Name, *change.Create.Spec.MaxMessageBytes, 1)
		s, _ := c.latest()
		return cluster.Answer{Index: s.Index, Created: true}, nil
	case change.Commit != nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		taken := make([]bool, len(change.Commit.Of))
		for i, of := range change.Commit.Of {
			taken[i] = true
			p := &c.progress
			p.Done = append(p.Done, of.Done...)
			for _, intent := range of.Intents {
				if intent.Sequence == p.Sequence {
					p.Intents, p.Sequence = append(p.Intents, intent), p.Sequence+1
				}
			}
			for _, o := range of.Published {
				p.Dead = append(p.Dead, cluster.Span{From: o, To: o + 1})
				p.Intents = nil
			}
		}
		return cluster.Answer{Taken: taken}, nil
	}
	return cluster.Answer{}, fault.New(fault.Invalid, "not here")
}

// alone is a network without others.
type alone struct{}

func (alone) Follow(context.Context, rpc.Follow) (link.FollowerStream, error) {
	return nil, errors.New("nobody is there")
}

func (alone) Append(_ ident.NodeID, _ rpc.Append, done func(rpc.Appended)) {
	done(rpc.Appended{Err: fault.New(fault.LeaderUnavailable, "nobody is there")})
}

// run runs a broker on a folder, until stop.
func run(t *testing.T, dir string, c *council) (b *Broker, stop func()) {
	t.Helper()
	store, err := storage.Open(storage.Config{Dir: dir, JournalFileBytes: 1 << 20, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	b = New(Config{
		Node: self, Store: store, Coordinator: c, Network: alone{}, Lease: func(uint64) bool { return true }, LeaseFor: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := store.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	s, _ := c.latest()
	if err := b.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return b, stop
}

func publish(t *testing.T, b *Broker, ref ident.Partition, values ...string) {
	t.Helper()
	var batch record.Builder
	for _, v := range values {
		batch.Add(&record.Record{Value: []byte(v), ContentType: "text/plain"})
	}
	answer := make(chan rpc.Appended, 1)
	b.Append(rpc.Append{Partition: ref, Batch: batch.Seal()}, func(a rpc.Appended) { answer <- a })
	if a := <-answer; a.Err != nil {
		t.Fatal(a.Err)
	}
}

// A group's records on real logs: leased, acknowledged, rejected into a topic that is made
// for them, and after a restart where they were.
func TestABrokerWorksForAGroup(t *testing.T) {
	group := &cluster.Group{
		ID: ident.GroupID{5}, Topic: ident.TopicID{1}, Name: "billing", Modified: 6,
		Settings: cluster.GroupSettings{Mode: cluster.Shared, Lease: time.Minute, MaxDeliveries: 5, DeadLetter: "billing.dlq", MaxInFlight: 100},
		Members:  []cluster.Member{{ID: "m1", Epoch: 6}},
	}
	ref := ident.Partition{Topic: group.Topic}
	m := cluster.MemberLife{Group: group.ID, Member: "m1", Epoch: 6}
	c, dir := newCouncil(group), t.TempDir()
	b, stop := run(t, dir, c)
	publish(t, b, ref, "a", "b")
	take := rpc.Take{MemberLife: m, Index: 8, Partitions: []ident.Partition{ref}, Limit: 10, MaxBytes: 1 << 20, Wait: 10 * time.Second}
	taken, err := b.Take(t.Context(), take)
	if err != nil || taken.Of[0].Err != nil || len(taken.Of[0].Leases) != 2 {
		t.Fatalf("%+v, %v", taken, err)
	}
	done, err := b.Settle(t.Context(), rpc.Settle{MemberLife: m, Of: []rpc.SettleOf{{Partition: ref, Through: -1, Ack: []ident.Offset{1}, Reject: []rpc.Reject{{Offset: 0, Reason: "bad"}}}}})
	if err != nil || done.Of[0].Err != nil || len(done.Of[0].Stale) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	letters := deadLetters(t, b, c)
	if len(letters) != 1 || string(letters[0].Value) != "a" || letters[0].Producer != ident.SystemProducer(group.ID, 0) {
		t.Fatalf("%+v", letters)
	}

	// Another leader that has not heard that the letter was written writes it again: the
	// log knows it.
	c.mu.Lock()
	c.progress.Intents, c.progress.Dead = []cluster.Intent{{Offset: 0, Sequence: 0, Deliveries: 1, Reason: "bad"}}, nil
	c.mu.Unlock()
	stop()
	for name, id := range map[string]ident.TopicID{"orders": ref.Topic, "billing.dlq": topicOf(c, "billing.dlq")} {
		c.topic(id, name, 2<<20, 2)
	}
	b, _ = run(t, dir, c)
	publish(t, b, ref, "c")
	if taken, err = b.Take(t.Context(), take); err != nil || taken.Of[0].Err != nil || len(taken.Of[0].Leases) != 1 || taken.Of[0].Leases[0].Offset != 2 {
		t.Fatalf("%+v, %v", taken, err)
	}
	if n := len(deadLetters(t, b, c)); n != 1 {
		t.Errorf("%d letters", n)
	}
	all, err := b.Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{group.ID}, Partitions: []ident.Partition{ref}})
	if err != nil || len(all) != 1 || all[0].InFlight != 1 || all[0].Dead != 1 || all[0].Lag != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	status, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: 1})
	if err != nil || len(status) != 1 || status[0].State != rpc.Processed {
		t.Errorf("%+v, %v", status, err)
	}
}

func topicOf(c *council, name string) ident.TopicID {
	s, _ := c.latest()
	t, _ := s.Topic(name)
	return t.ID
}

// deadLetters are those in the log once the coordinator holds that they are.
func deadLetters(t *testing.T, b *Broker, c *council) (all []record.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		dead := len(c.progress.Dead)
		c.mu.Unlock()
		if dead > 0 {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no letter was written")
		}
	}
	got, err := b.Read(ctx, rpc.Read{Partition: ident.Partition{Topic: topicOf(c, "billing.dlq")}, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for rest := got.Batches; len(rest) > 0; {
		batch, next, err := record.Cut(rest)
		if err != nil {
			t.Fatal(err)
		}
		for it := batch.Entries(); it.Next(); {
			all = append(all, it.Entry().Record)
		}
		rest = next
	}
	return all
}
