package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var self = ident.NodeID{0xee}

// topic of one partition that this node leads in an epoch.
func topic(n byte, epoch ident.Epoch, modified uint64) *cluster.Topic {
	return &cluster.Topic{
		ID: ident.TopicID{n}, Name: fmt.Sprint("topic-", n), Generation: 1, Modified: modified,
		Settings: cluster.Settings{MaxMessageBytes: 1 << 20, Durability: cluster.Fsync, IdempotencyWindow: time.Minute},
		Partitions: []cluster.Partition{{
			Range: ident.FullRange, State: cluster.Open, Leader: self, LeaderEpoch: epoch,
			Replicas: []ident.NodeID{self}, ISR: []ident.NodeID{self},
		}},
	}
}

func snapshot(index uint64, topics ...*cluster.Topic) *cluster.Snapshot {
	s := &cluster.Snapshot{Index: index, Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}, Deleted: map[ident.TopicID]uint64{}}
	for _, t := range topics {
		s.Topics[t.Name], s.ByID[t.ID] = t, t
	}
	return s
}

// node is a host on a folder, with its storage running.
type node struct {
	t     *testing.T
	dir   string
	store *storage.Store
	host  *Host
	stop  func()
}

func start(t *testing.T, dir string) *node {
	t.Helper()
	store, err := storage.Open(storage.Config{Dir: dir, JournalFileBytes: 1 << 20, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	n := &node{t: t, dir: dir, store: store, host: New(Config{Node: self, Store: store, Lease: func(uint64) bool { return true }, Logger: slog.New(slog.DiscardHandler)})}
	n.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n.stop = func() {}
	}
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) apply(s *cluster.Snapshot) {
	n.t.Helper()
	if err := errors.Join(n.host.Sweep(s), n.host.Apply(n.t.Context(), s)); err != nil {
		n.t.Fatal(err)
	}
}

// publish gives the fate of one sequenced record.
func (n *node) publish(topic byte, sequence int64) (rpc.RecordResult, error) {
	n.t.Helper()
	ref := ident.Partition{Topic: ident.TopicID{topic}}
	r, err := n.host.Replica(ref)
	if err != nil {
		return rpc.RecordResult{}, err
	}
	var b record.Builder
	b.Add(&record.Record{Value: []byte("v"), ContentType: "text/plain", Producer: ident.ProducerID{1}, Sequence: sequence})
	answer := make(chan rpc.Appended, 1)
	r.Append(rpc.Append{Partition: ref, Batch: b.Seal()}, func(a rpc.Appended) { answer <- a })
	a := <-answer
	if a.Err != nil {
		return rpc.RecordResult{}, a.Err
	}
	return a.Records[0], a.Records[0].Err
}

func (n *node) keep(topic byte, sequence int64, want ident.Offset, duplicate bool) {
	n.t.Helper()
	if r, err := n.publish(topic, sequence); err != nil || r.Offset != want || r.Duplicate != duplicate {
		n.t.Fatalf("sequence %d: %+v, %v; want offset %d, duplicate %v", sequence, r, err, want, duplicate)
	}
}

func (n *node) folders(of string) []string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.dir, of))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestProducersAreKnownAfterARestart(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	n.apply(snapshot(1, topic(1, 1, 1)))
	n.keep(1, 0, 0, false)
	n.keep(1, 1, 1, false)
	n.stop()

	n = start(t, dir)
	n.apply(snapshot(2, topic(1, 2, 2)))
	n.keep(1, 0, 0, true)
	n.keep(1, 2, 2, false)
	r, err := n.host.Replica(ident.Partition{Topic: ident.TopicID{1}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.Bounds(); err != nil || b.Epoch != 2 || b.HW != 3 {
		t.Fatalf("%+v, %v", b, err)
	}
	if end, err := r.EpochEnd(1); err != nil || end != 2 {
		t.Fatalf("epoch 1 ended at %d, %v; want 2", end, err)
	}
}

func TestADeletedTopicLeavesNothingAndAnotherOfItsNameIsAnother(t *testing.T) {
	n := start(t, t.TempDir())
	n.apply(snapshot(1, topic(1, 1, 1), topic(2, 1, 1)))
	n.keep(1, 0, 0, false)
	gone := snapshot(2, topic(2, 1, 1))
	gone.Deleted[ident.TopicID{1}] = 2
	n.apply(gone)
	if _, err := n.publish(1, 1); !fault.Is(err, fault.LeaderUnavailable) {
		t.Fatal(err)
	}
	n.keep(2, 0, 0, false)
	again := topic(3, 1, 3)
	again.Name = "topic-1"
	n.apply(snapshot(3, topic(2, 1, 1), again))
	n.keep(3, 0, 0, false)
	n.stop()
	for _, name := range n.folders("topics") {
		if name == (ident.TopicID{1}).String() {
			t.Fatal("the deleted topic's folder is still there")
		}
	}
}

func TestADeletionThatACrashCutShortIsFinished(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	n.apply(snapshot(1, topic(1, 1, 1)))
	n.keep(1, 0, 0, false)
	n.stop()
	n = start(t, dir)
	s := snapshot(2)
	s.Deleted[ident.TopicID{1}] = 2
	n.apply(s)
	if f, q := n.folders("topics"), n.folders("quarantine"); len(f)+len(q) != 0 {
		t.Fatalf("left: %v, in quarantine: %v", f, q)
	}
}

func TestWhatTheCoordinatorDoesNotKnowIsSetAsideNotDeleted(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	n.apply(snapshot(1, topic(1, 1, 1)))
	n.keep(1, 0, 0, false)
	n.stop()
	n = start(t, dir)
	n.apply(snapshot(2))
	if f, q := n.folders("topics"), n.folders("quarantine"); len(f) != 0 || len(q) == 0 {
		t.Fatalf("topics: %v, quarantine: %v", f, q)
	}
}

func TestSettingsFollowTheTopic(t *testing.T) {
	n := start(t, t.TempDir())
	n.apply(snapshot(1, topic(1, 1, 1)))
	small := topic(1, 1, 2)
	small.Settings.MaxMessageBytes = 0
	n.apply(snapshot(2, small))
	if _, err := n.publish(1, 0); !fault.Is(err, fault.MessageTooLarge) {
		t.Fatal(err)
	}
	if err := n.host.Reached(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.host.Reached(ctx, 3); err == nil {
		t.Fatal("index 3 was not reached")
	}
}
