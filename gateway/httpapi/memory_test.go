package httpapi

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// memory is a cluster of one node in memory: the topics, and the log of each
// partition with its producers and Idempotency-Keys. It is the Topology, the
// Control, the Leader of a publisher and the Source of a hub.
type memory struct {
	node     ident.NodeID
	snapshot atomic.Pointer[cluster.Snapshot]

	mu    sync.Mutex
	parts map[ident.Partition]*memoryPart
	// refuse, if set, answers a batch in place of the log.
	refuse func(rpc.Append) error
	// hold, if set, gets the answers instead of their callers.
	hold func(answer func())
}

type memoryPart struct {
	start     ident.Offset
	hw        ident.Offset
	batches   []record.Batch
	more      chan struct{}
	producers map[ident.ProducerID]*memoryProducer
	keys      map[string]memoryKey
}

type memoryProducer struct {
	next int64
	at   map[int64]rpc.RecordResult
}

type memoryKey struct {
	hash [16]byte
	at   rpc.RecordResult
}

func newMemory() *memory {
	m := &memory{node: ident.NodeID(uuid.New()), parts: map[ident.Partition]*memoryPart{}}
	m.snapshot.Store(&cluster.Snapshot{
		Cluster: ident.ClusterID(uuid.New()),
		Topics:  map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}, Deleted: map[ident.TopicID]uint64{},
		Nodes: map[ident.NodeID]*cluster.Node{m.node: {
			ID: m.node, Name: "node-a", Roles: []string{"gateway", "broker", "coordinator"}, Version: "1", State: cluster.Alive,
			Addresses: cluster.Addresses{HTTP: "127.0.0.1:1", RPC: "127.0.0.1:2", Raft: "127.0.0.1:3", Gossip: "127.0.0.1:4"}, Since: time.Now(),
		}},
	})
	return m
}

func (m *memory) Snapshot() *cluster.Snapshot { return m.snapshot.Load() }

func (m *memory) CatchUp(context.Context) {}

func (m *memory) change(f func(*cluster.Snapshot)) {
	old := m.snapshot.Load()
	s := *old
	s.Topics, s.ByID = maps.Clone(old.Topics), maps.Clone(old.ByID)
	s.Index++
	f(&s)
	m.snapshot.Store(&s)
}

func (m *memory) CreateTopic(_ context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	partitions := 1
	if spec.Partitions != nil {
		partitions = *spec.Partitions
	}
	if spec.Replicas != nil && *spec.Replicas > 1 {
		return nil, false, fault.New(fault.Invalid, "field \"replicas\" takes at most 1: there is 1 broker").With("field", "replicas")
	}
	if t, ok := m.Snapshot().Topic(spec.Name); ok {
		if spec.Partitions != nil && partitions != len(t.Partitions) {
			return nil, false, fault.New(fault.TopicExists, "topic %q has partitions %d, not %d", t.Name, len(t.Partitions), partitions)
		}
		return t, false, nil
	}
	t := &cluster.Topic{
		ID: ident.TopicID(uuid.New()), Name: spec.Name, Generation: 1, Created: time.Now(),
		Settings: apply(cluster.Settings{
			Replicas: 1, MinInsync: 1, RetentionAge: cluster.DefaultRetentionAge, MaxMessageBytes: cluster.DefaultMessageBytes,
			Durability: cluster.Fsync, IdempotencyWindow: cluster.DefaultIdempotencyWindow,
		}, spec.SettingsPatch),
	}
	width := ident.HashSpace / uint64(partitions)
	for i := range partitions {
		p := cluster.Partition{
			Index: ident.Index(i), Range: ident.HashRange{Lo: uint64(i) * width, Hi: uint64(i+1) * width}, State: cluster.Open,
			Replicas: []ident.NodeID{m.node}, ISR: []ident.NodeID{m.node}, Leader: m.node, LeaderEpoch: 1,
		}
		if i == partitions-1 {
			p.Range.Hi = ident.HashSpace
		}
		t.Partitions = append(t.Partitions, p)
		m.parts[t.Ref(p.Index)] = &memoryPart{more: make(chan struct{}), producers: map[ident.ProducerID]*memoryProducer{}, keys: map[string]memoryKey{}}
	}
	m.change(func(s *cluster.Snapshot) { s.Topics[t.Name], s.ByID[t.ID] = t, t })
	return t, true, nil
}

func (m *memory) AlterTopic(_ context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := *m.Snapshot().Topics[name]
	t.Settings = apply(t.Settings, patch)
	m.change(func(s *cluster.Snapshot) { s.Topics[t.Name], s.ByID[t.ID] = &t, &t })
	return &t, nil
}

func apply(s cluster.Settings, p cluster.SettingsPatch) cluster.Settings {
	s.RetentionAge = *cmp.Or(p.RetentionAge, &s.RetentionAge)
	s.RetentionBytes = *cmp.Or(p.RetentionBytes, &s.RetentionBytes)
	s.MaxMessageBytes = *cmp.Or(p.MaxMessageBytes, &s.MaxMessageBytes)
	s.Durability = *cmp.Or(p.Durability, &s.Durability)
	s.Unclean = *cmp.Or(p.Unclean, &s.Unclean)
	s.IdempotencyWindow = *cmp.Or(p.IdempotencyWindow, &s.IdempotencyWindow)
	return s
}

func (m *memory) DeleteTopic(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(func(s *cluster.Snapshot) {
		delete(s.ByID, s.Topics[name].ID)
		delete(s.Topics, name)
	})
	return nil
}

func (m *memory) PurgeTopic(ctx context.Context, t *cluster.Topic, before map[ident.Index]ident.Offset) ([]cluster.Position, error) {
	if before == nil {
		before = map[ident.Index]ident.Offset{}
		for i := range t.Partitions {
			b, err := m.Bounds(ctx, t.Ref(ident.Index(i)))
			if err != nil {
				return nil, err
			}
			before[ident.Index(i)] = b.HW
		}
	}
	var out []cluster.Position
	for _, i := range slices.Sorted(maps.Keys(before)) {
		if _, ok := t.Partition(i); !ok {
			return nil, fault.New(fault.PartitionNotFound, "topic %q has no partition %d", t.Name, i)
		}
		m.expire(t.Ref(i), before[i])
		out = append(out, cluster.Position{Partition: i, Offset: before[i]})
	}
	return out, nil
}

func (m *memory) Append(req rpc.Append, done func(rpc.Appended)) {
	m.mu.Lock()
	answer, hold := m.appendLocked(req), m.hold
	m.mu.Unlock()
	if hold != nil {
		hold(func() { done(answer) })
		return
	}
	done(answer)
}

func (m *memory) appendLocked(req rpc.Append) rpc.Appended {
	if m.refuse != nil {
		if err := m.refuse(req); err != nil {
			return rpc.Appended{Err: err}
		}
	}
	p := m.parts[req.Partition]
	now := time.Now().UnixMilli()
	var out rpc.Appended
	var fates []record.Fate
	next := p.hw
	most := m.Snapshot().ByID[req.Partition.Topic].Settings.MaxMessageBytes
	for it := req.Batch.Entries(); it.Next(); {
		e := it.Entry()
		res := rpc.RecordResult{Offset: next, Timestamp: now}
		found, err := p.seen(e, res)
		fate := record.Drop
		switch {
		case err != nil:
			res = rpc.RecordResult{Err: err}
		case found != nil:
			res = *found
			res.Duplicate = true
		case e.Bytes() > most:
			res = rpc.RecordResult{Err: publish.TooLarge("", e.Bytes(), most)}
			fate = record.UseUp
			if w := p.producers[e.Producer]; w != nil {
				w.at[e.Sequence] = rpc.RecordResult{Err: fault.New(fault.Invalid, "sequence %d was used up by a record that was refused", e.Sequence)}
			}
		default:
			fate = record.Keep
			if e.Void {
				fate = record.UseUp
			} else {
				next++
			}
		}
		fates = append(fates, fate)
		out.Records = append(out.Records, res)
	}
	batch, err := req.Batch.Filter(func(i int) record.Fate { return fates[i] })
	if err != nil {
		return rpc.Appended{Err: err}
	}
	if batch != nil {
		batch.Assign(record.Place{Partition: req.Partition, Epoch: 1, Base: p.hw, Timestamp: now})
		if batch.Header().Span > 0 {
			p.batches = append(p.batches, batch)
		}
	}
	p.hw = next
	close(p.more)
	p.more = make(chan struct{})
	return out
}

// seen judges one entry by its producer's sequence and its Idempotency-Key,
// and remembers it.
func (p *memoryPart) seen(e *record.Entry, at rpc.RecordResult) (*rpc.RecordResult, error) {
	if !e.Producer.IsZero() {
		w := p.producers[e.Producer]
		if w == nil {
			if e.Sequence > 0 {
				return nil, fault.New(fault.UnknownProducer, "the partition does not know this producer")
			}
			w = &memoryProducer{at: map[int64]rpc.RecordResult{}}
			p.producers[e.Producer] = w
		}
		switch {
		case e.Sequence > w.next:
			return nil, fault.New(fault.OutOfOrderSequence, "sequence %d came where %d is expected", e.Sequence, w.next).With("expected", w.next)
		case e.Sequence < w.next:
			first, ok := w.at[e.Sequence]
			if first.Err != nil && !e.Void {
				return nil, first.Err
			}
			if !ok {
				first = rpc.RecordResult{Offset: -1}
			}
			return &first, nil
		}
		w.next++
		if !e.Void {
			w.at[e.Sequence] = at
		}
	}
	if id := e.Idempotency; id != nil {
		name := id.Principal + "\x00" + id.Key
		if first, ok := p.keys[name]; ok {
			if first.hash != id.Hash {
				return nil, fault.New(fault.IdempotencyKeyReused, "Idempotency-Key %q came with another body before", id.Key)
			}
			return &first.at, nil
		}
		p.keys[name] = memoryKey{id.Hash, at}
	}
	return nil, nil
}

func (m *memory) part(ref ident.Partition) (*memoryPart, error) {
	if p, ok := m.parts[ref]; ok {
		return p, nil
	}
	return nil, fault.New(fault.LeaderUnavailable, "no such partition here")
}

func (m *memory) Bounds(_ context.Context, ref ident.Partition) (rpc.Bounds, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.part(ref)
	if err != nil {
		return rpc.Bounds{}, err
	}
	return p.bounds(), nil
}

func (p *memoryPart) bounds() rpc.Bounds { return rpc.Bounds{Start: p.start, HW: p.hw, Epoch: 1} }

func (m *memory) Read(_ context.Context, r rpc.Read) (rpc.ReadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.part(r.Partition)
	if err != nil {
		return rpc.ReadResult{}, err
	}
	res := rpc.ReadResult{Bounds: p.bounds()}
	switch {
	case r.Offset < p.start:
		return res, fault.New(fault.OffsetExpired, "offset %d is gone", r.Offset)
	case r.Offset > p.hw:
		return res, fault.New(fault.OffsetNotFound, "offset %d is not there yet", r.Offset)
	}
	for _, b := range p.batches {
		if b.Header().Next() <= r.Offset {
			continue
		}
		if len(res.Batches) > 0 && len(res.Batches)+len(b) > r.MaxBytes {
			break
		}
		res.Batches = append(res.Batches, b...)
	}
	return res, nil
}

func (m *memory) Tail(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) { return m.Read(ctx, r) }

func (m *memory) OffsetAt(_ context.Context, ref ident.Partition, ms int64) (ident.Offset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.part(ref)
	if err != nil {
		return 0, err
	}
	for _, b := range p.batches {
		if b.Header().Timestamp >= ms {
			return b.Header().Base, nil
		}
	}
	return p.hw, nil
}

func (m *memory) EpochEnd(ctx context.Context, ref ident.Partition, _ ident.Epoch) (ident.Offset, error) {
	b, err := m.Bounds(ctx, ref)
	return b.HW, err
}

func (m *memory) Wait(ref ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.part(ref)
	if err != nil {
		return nil, err
	}
	if p.hw > after {
		closed := make(chan struct{})
		close(closed)
		return closed, nil
	}
	return p.more, nil
}

// expire is retention: the records below an offset are gone.
func (m *memory) expire(ref ident.Partition, below ident.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[ref]
	p.start = below
	p.batches = slices.DeleteFunc(p.batches, func(b record.Batch) bool { return b.Header().Next() <= below })
}

// values are the records of a partition, in order.
func (m *memory) values(topic string, i ident.Index) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.parts[m.Snapshot().Topics[topic].Ref(i)].batches {
		for it := b.Entries(); it.Next(); {
			if e := it.Entry(); !e.Void {
				out = append(out, string(e.Value))
			}
		}
	}
	return out
}

// entries walks every entry of a topic's partition 0, voids left out.
func (m *memory) entries(topic string, visit func(*record.Entry)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.parts[m.Snapshot().Topics[topic].Ref(0)].batches {
		for it := b.Entries(); it.Next(); {
			visit(it.Entry())
		}
	}
}

// Drain notes it at once.
func (m *memory) Drain(_ context.Context, node ident.NodeID, cancel bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(func(s *cluster.Snapshot) {
		s.Nodes = maps.Clone(s.Nodes)
		n := *s.Nodes[node]
		if n.State = cluster.DrainingState; cancel {
			n.State = cluster.Alive
		}
		s.Nodes[node] = &n
	})
	return nil
}

// nodes is a cluster of this node alone, with connections if it has any.
func (m *memory) nodes(connections ...*connection.Set) *census.Census {
	set := connection.New()
	if len(connections) > 0 {
		set = connections[0]
	}
	return census.New(census.Config{Self: m.node, Topology: m, Backend: &census.Backend{Own: m.Figures, Clients: set}, Local: func(ref ident.Partition) (rpc.Bounds, error) { return m.Bounds(context.Background(), ref) }})
}

func (m *memory) Figures() census.Figures {
	return census.Figures{ID: m.node, Started: time.Now().Add(-time.Hour), Connections: 3, Disk: census.Disk{Used: 10, Free: 90}, CoordinatorLeader: m.node}
}
