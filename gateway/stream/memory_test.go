package stream_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a broker of partitions in memory: a Source and a topology.
type memory struct {
	mu     sync.Mutex
	snap   *cluster.Snapshot
	logs   map[ident.Partition]*memoryLog
	lastMs int64
}

type memoryLog struct {
	ref     ident.Partition
	batches []record.Batch
	times   []int64 // by offset
	start   ident.Offset
	epoch   ident.Epoch
	down    bool
	changed chan struct{}
}

func newMemory() *memory {
	return &memory{
		snap: &cluster.Snapshot{Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}},
		logs: map[ident.Partition]*memoryLog{},
	}
}

// topic makes a topic of n partitions, each with its share of the hashes.
func (m *memory) topic(name string, n int) *cluster.Topic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &cluster.Topic{Name: name, Generation: 1, ID: ident.TopicID{byte(len(m.snap.ByID) + 1)}}
	for i := range n {
		lo, hi := ident.HashSpace*uint64(i)/uint64(n), ident.HashSpace*uint64(i+1)/uint64(n)
		t.Partitions = append(t.Partitions, cluster.Partition{Index: ident.Index(i), Range: ident.HashRange{Lo: lo, Hi: hi}, State: cluster.Open})
		ref := t.Ref(ident.Index(i))
		m.logs[ref] = &memoryLog{ref: ref, epoch: 1, changed: make(chan struct{})}
	}
	m.swapLocked(func(s *cluster.Snapshot) { s.Topics[name], s.ByID[t.ID] = t, t })
	return t
}

func (m *memory) swapLocked(change func(*cluster.Snapshot)) {
	next := &cluster.Snapshot{Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}}
	for k, v := range m.snap.Topics {
		next.Topics[k] = v
	}
	for k, v := range m.snap.ByID {
		next.ByID[k] = v
	}
	change(next)
	m.snap = next
}

func (m *memory) deleteTopic(t *cluster.Topic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swapLocked(func(s *cluster.Snapshot) { delete(s.Topics, t.Name); delete(s.ByID, t.ID) })
	for _, p := range t.Partitions {
		l := m.logs[t.Ref(p.Index)]
		delete(m.logs, t.Ref(p.Index))
		close(l.changed)
	}
}

func (m *memory) Snapshot() *cluster.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snap
}

// append keeps one batch with a record a key; the key "" is none.
func (m *memory) append(ref ident.Partition, keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[ref]
	var b record.Builder
	base := ident.Offset(len(l.times))
	m.lastMs++
	for _, k := range keys {
		r := record.Record{ContentType: record.JSON, Value: fmt.Appendf(nil, `{"n":%d, "of": %d}`, len(l.times), ref.Index)}
		if k != "" {
			r.Key = []byte(k)
		}
		b.Add(&r)
		l.times = append(l.times, m.lastMs)
	}
	batch := b.Seal()
	batch.Assign(record.Place{Partition: ref, Epoch: l.epoch, Base: base, Timestamp: m.lastMs})
	l.batches = append(l.batches, batch)
	l.wakeLocked()
}

func (l *memoryLog) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// retain moves the log start up.
func (m *memory) retain(ref ident.Partition, start ident.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.logs[ref]; start > l.start && start <= ident.Offset(len(l.times)) {
		l.start = start
		for len(l.batches) > 0 && l.batches[0].Header().Next() <= start {
			l.batches = l.batches[1:]
		}
	}
}

func (m *memory) serve(ref ident.Partition, up bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[ref].down = !up
	m.logs[ref].wakeLocked()
}

func (m *memory) logLocked(ref ident.Partition) (*memoryLog, rpc.Bounds, error) {
	l := m.logs[ref]
	if l == nil || l.down {
		return nil, rpc.Bounds{}, fault.New(fault.LeaderUnavailable, "partition %s is not served here", ref)
	}
	return l, rpc.Bounds{Start: l.start, HW: ident.Offset(len(l.times)), Epoch: l.epoch}, nil
}

func (m *memory) Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, b, err := m.logLocked(r.Partition)
	res := rpc.ReadResult{Bounds: b}
	switch {
	case err != nil:
		return res, err
	case r.Offset < b.Start:
		return res, fault.New(fault.OffsetExpired, "offset %d is gone", r.Offset)
	case r.Offset > b.HW:
		return res, fault.New(fault.OffsetNotFound, "offset %d is not there yet", r.Offset)
	case r.Offset == b.HW:
		return res, nil
	}
	for _, batch := range l.batches {
		if batch.Header().Next() <= r.Offset {
			continue
		}
		if len(res.Batches) > 0 && len(res.Batches)+len(batch) > r.MaxBytes {
			break
		}
		res.Batches = append(res.Batches, batch...)
	}
	return res, nil
}

func (m *memory) Bounds(p ident.Partition) (rpc.Bounds, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, b, err := m.logLocked(p)
	return b, err
}

func (m *memory) OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, b, err := m.logLocked(p)
	if err != nil {
		return 0, err
	}
	for o := b.Start; o < b.HW; o++ {
		if l.times[o] >= ms {
			return o, nil
		}
	}
	return b.HW, nil
}

func (m *memory) EpochEnd(p ident.Partition, _ ident.Epoch) (ident.Offset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, b, err := m.logLocked(p)
	return b.HW, err
}

func (m *memory) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, b, err := m.logLocked(p)
	if err != nil {
		return nil, err
	}
	if b.HW > after {
		ch := make(chan struct{})
		close(ch)
		return ch, nil
	}
	return l.changed, nil // wakes too often, never too late
}

// startHub runs a hub until the test ends.
func startHub(t *testing.T, m *memory, cfg deliver.Config) *deliver.Hub {
	t.Helper()
	cfg.Source, cfg.Topology = m, m
	h := deliver.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return h
}

func at(i ident.Index) *ident.Index { return &i }

// message is what tests look at of a message.
type message struct {
	Partition ident.Index
	Offset    ident.Offset
	Key       string
}
