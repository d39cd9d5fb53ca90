package session_test

import (
	"context"
	"sync"
	"time"

	"tidewire/gateway/publish"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// memory is a broker in memory: what sessions publish to and read from.
type memory struct {
	mu   sync.Mutex
	snap *cluster.Snapshot
	logs map[ident.Partition]*memoryLog

	hold  chan struct{} // not nil: publishes wait until it is closed
	voids []int64
	wait  sync.WaitGroup
}

type memoryLog struct {
	batches []record.Batch // one record each
	start   ident.Offset
	changed chan struct{}
	seen    map[ident.ProducerID]int64 // next sequence
}

func newMemory() *memory {
	return &memory{snap: &cluster.Snapshot{Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}}, logs: map[ident.Partition]*memoryLog{}}
}

func (m *memory) topic(name string, n int) *cluster.Topic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &cluster.Topic{Name: name, Generation: 1, ID: ident.TopicID{byte(len(name)), name[0]}, Settings: cluster.Settings{MaxMessageBytes: 64 << 10}}
	for i := range n {
		p := cluster.Partition{Index: ident.Index(i), State: cluster.Open, LeaderEpoch: 1, Leader: ident.NodeID{1}}
		p.Range = ident.HashRange{Lo: ident.HashSpace * uint64(i) / uint64(n), Hi: ident.HashSpace * uint64(i+1) / uint64(n)}
		t.Partitions = append(t.Partitions, p)
		m.logs[t.Ref(p.Index)] = &memoryLog{changed: make(chan struct{}), seen: map[ident.ProducerID]int64{}}
	}
	next := &cluster.Snapshot{Topics: map[string]*cluster.Topic{name: t}, ByID: map[ident.TopicID]*cluster.Topic{t.ID: t}}
	for k, v := range m.snap.Topics {
		next.Topics[k], next.ByID[v.ID] = v, v
	}
	m.snap = next
	return t
}

func (m *memory) deleteTopic(t *cluster.Topic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := &cluster.Snapshot{Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}}
	for k, v := range m.snap.Topics {
		if v != t {
			next.Topics[k], next.ByID[v.ID] = v, v
		}
	}
	m.snap = next
	for _, p := range t.Partitions {
		close(m.logs[t.Ref(p.Index)].changed)
		delete(m.logs, t.Ref(p.Index))
	}
}

func (m *memory) Snapshot() *cluster.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snap
}

// Publish answers at once, or when hold is closed.
func (m *memory) Publish(req publish.Request, done func(publish.Result)) {
	req.Record.Key = append([]byte(nil), req.Record.Key...)
	req.Record.Value = append([]byte(nil), req.Record.Value...)
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold == nil {
		done(m.keep(req))
		return
	}
	m.wait.Go(func() { <-hold; done(m.keep(req)) })
}

func (m *memory) keep(req publish.Request) publish.Result {
	res := m.keepUntagged(req)
	res.Tag = req.Tag
	if req.Acks == rpc.AcksNone && res.Err == nil { // nobody waited for a place
		res.Offset, res.Timestamp = -1, 0
	}
	return res
}

func (m *memory) keepUntagged(req publish.Request) publish.Result {
	t, err := topology.Topic(m, req.Topic)
	if err != nil {
		return publish.Result{Err: err}
	}
	r := &req.Record
	if len(r.Key) == 0 {
		r.Key = nil
	}
	p := topology.Owner(t, ident.KeyHash(r.Key)).Index
	if req.Partition != nil {
		p = *req.Partition
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[t.Ref(p)]
	if l == nil {
		return publish.Result{Err: fault.New(fault.PartitionNotFound, "no partition %d", p)}
	}
	if !r.Producer.IsZero() {
		if next := l.seen[r.Producer]; r.Sequence != next {
			return publish.Result{Err: fault.New(fault.OutOfOrderSequence, "expected %d", next).With("expected", next)}
		}
		l.seen[r.Producer]++
	}
	if req.Void {
		m.voids = append(m.voids, r.Sequence)
		return publish.Result{Topic: t.Name, Partition: p}
	}
	o := m.appendLocked(t.Ref(p), r)
	return publish.Result{Topic: t.Name, Partition: p, Offset: o, Timestamp: time.Now().UnixMilli()}
}

func (m *memory) appendLocked(ref ident.Partition, r *record.Record) ident.Offset {
	l := m.logs[ref]
	var b record.Builder
	b.Add(r)
	batch := b.Seal()
	o := ident.Offset(len(l.batches))
	batch.Assign(record.Place{Partition: ref, Epoch: 1, Base: o, Timestamp: time.Now().UnixMilli()})
	l.batches = append(l.batches, batch)
	close(l.changed)
	l.changed = make(chan struct{})
	return o
}

func (m *memory) append(ref ident.Partition, key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := record.Record{ContentType: record.JSON, Value: []byte(value)}
	if key != "" {
		r.Key = []byte(key)
	}
	m.appendLocked(ref, &r)
}

func (m *memory) retain(ref ident.Partition, start ident.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[ref].start = start
}

func (m *memory) boundsLocked(p ident.Partition) (*memoryLog, rpc.Bounds, error) {
	l := m.logs[p]
	if l == nil {
		return nil, rpc.Bounds{}, fault.New(fault.LeaderUnavailable, "not served here")
	}
	return l, rpc.Bounds{Start: l.start, HW: ident.Offset(len(l.batches)), Epoch: 1}, nil
}

func (m *memory) Read(_ context.Context, r rpc.Read) (rpc.ReadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, b, err := m.boundsLocked(r.Partition)
	res := rpc.ReadResult{Bounds: b}
	switch {
	case err != nil:
		return res, err
	case r.Offset < b.Start:
		return res, fault.New(fault.OffsetExpired, "gone")
	case r.Offset > b.HW:
		return res, fault.New(fault.OffsetNotFound, "not yet")
	}
	for _, batch := range l.batches[r.Offset:] {
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
	_, b, err := m.boundsLocked(p)
	return b, err
}

func (m *memory) OffsetAt(context.Context, ident.Partition, int64) (ident.Offset, error) {
	return 0, nil
}

func (m *memory) EpochEnd(p ident.Partition, _ ident.Epoch) (ident.Offset, error) {
	b, err := m.Bounds(p)
	return b.HW, err
}

func (m *memory) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, b, err := m.boundsLocked(p)
	if err != nil {
		return nil, err
	}
	if b.HW > after {
		ch := make(chan struct{})
		close(ch)
		return ch, nil
	}
	return l.changed, nil
}
