package publish

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/pace"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Appender is a partition's leader, wherever it is. It calls done exactly once,
// perhaps before it returns, for every batch it is given.
type Appender interface {
	Append(req rpc.Append, done func(rpc.Appended))
}

// Changes is the cluster's change feed. Next blocks until there is a snapshot
// newer than an index.
type Changes interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// DefaultTimeout is how long a publish may take when its client names no time.
const DefaultTimeout = 5 * time.Second

// Config of a Publisher. A zero field means its default.
type Config struct {
	Topology topology.Present // required
	Leader   Appender         // required
	// Changes tells of new leaders, for Run; nil: they are found by asking.
	Changes Changes
	// InFlightBytes bounds the records under way on this node where leaders are
	// quick; 128 MiB.
	InFlightBytes int64
	Registerer    prometheus.Registerer // nil: nothing is counted in public
}

// Request is one record and where it goes.
type Request struct {
	Topic     string
	Partition *ident.Index // nil: by key, Idempotency-Key or in turn
	Acks      rpc.Acks
	Timeout   time.Duration // 0: DefaultTimeout
	Record    record.Record // copied before Publish returns
	Tag       Tag
	// Void says that the record itself was refused: only its sequence number is
	// to be used up.
	Void bool
}

// Tag is what whoever publishes wants to have back with the result.
type Tag struct {
	ID    int64
	Bytes int
	Owner int // of several records; 0: nobody in particular
}

// Result is what became of a record.
type Result struct {
	Tag       Tag
	More      bool  // the next result of the same owner comes at once, from the same goroutine
	Err       error // a *fault.Error; nil: kept, or found again
	Topic     string
	Partition ident.Index
	Offset    ident.Offset // -1: a duplicate older than the window
	Timestamp int64        // ms since 1970; 0: not known any more
	Duplicate bool
}

// Publisher batches records and hands them to leaders.
type Publisher struct {
	cfg     Config
	metrics *metrics
	gate    *gate

	mu       sync.Mutex
	spreads  map[ident.TopicID]*spread
	lanes    map[ident.Partition]*lane
	draining bool
	busy     sync.WaitGroup // records under way
}

// New makes a Publisher. It starts nothing.
func New(cfg Config) *Publisher {
	if cfg.InFlightBytes == 0 {
		cfg.InFlightBytes = 128 << 20
	}
	return &Publisher{
		cfg:     cfg,
		metrics: newMetrics(cfg.Registerer),
		gate: newGate(pace.Bounds{
			Least: cfg.InFlightBytes / 32, Start: cfg.InFlightBytes / 4, Most: cfg.InFlightBytes, Wait: leaderWait,
		}),
		lanes: map[ident.Partition]*lane{}, spreads: map[ident.TopicID]*spread{},
	}
}

// leaderWait is how long a record should be under way at most where leaders
// are slow, and not gone: much less than DefaultTimeout.
const leaderWait = time.Second

// Publish sends one record on its way and returns; done is called exactly once
// with what became of it, perhaps before Publish returns, and must not block.
// Publish blocks while too much is under way, or while it is found out whether there is
// such a topic, at most for the record's timeout.
func (p *Publisher) Publish(req Request, done func(Result)) {
	if req.Timeout == 0 {
		req.Timeout = DefaultTimeout
	}
	t, err := p.check(&req)
	var index ident.Index
	if err == nil {
		index, err = p.place(t, &req)
	}
	w := waiter{done: done, tag: req.Tag}
	if err != nil {
		p.finish(&w, Result{Err: err, Topic: req.Topic})
		return
	}
	if !req.Void {
		if w.refusal = tooLarge(t, &req.Record); w.refusal != nil {
			if req.Record.Producer.IsZero() {
				p.finish(&w, Result{Err: w.refusal, Topic: t.Name, Partition: index})
				return
			}
			req.Void = true
		}
	}
	p.enqueue(t, index, &req, &w)
}

// finish answers a record that nobody else answers.
func (p *Publisher) finish(w *waiter, r Result) {
	if r.Err == nil && w.refusal != nil {
		r.Err = w.refusal
	}
	r.Tag = w.tag
	p.metrics.result(r, w.bytes)
	w.done(r)
}

// check finds the topic, if clients may write to it.
func (p *Publisher) check(req *Request) (*cluster.Topic, error) {
	if strings.HasPrefix(req.Topic, "_") {
		return nil, fault.New(fault.ReservedName, "topic %q is the cluster's own: readable, not writable", req.Topic)
	}
	if t, ok := p.cfg.Topology.Snapshot().Topic(req.Topic); ok {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	return topology.Topic(ctx, p.cfg.Topology, req.Topic)
}

// place picks the partition.
func (p *Publisher) place(t *cluster.Topic, req *Request) (ident.Index, error) {
	r := &req.Record
	if req.Partition != nil {
		owner, err := topology.Partition(t, *req.Partition)
		if err != nil {
			return 0, err
		}
		if r.Key != nil && !req.Void && !owner.Range.Contains(ident.KeyHash(r.Key)) {
			right := topology.Owner(t, ident.KeyHash(r.Key)).Index
			return 0, fault.New(fault.WrongPartition, "the key belongs to partition %d of topic %q, not %d; leave partition out to have it found", right, t.Name, owner.Index).
				With("partition", right)
		}
		return owner.Index, nil
	}
	switch {
	case r.Key != nil:
		return topology.Owner(t, ident.KeyHash(r.Key)).Index, nil
	case r.Idempotency != nil:
		return topology.Owner(t, ident.KeyHash(r.Idempotency.Key)).Index, nil
	}
	return p.spread(t, r.Bytes()), nil
}

// tooLarge refuses a record for its size. One that may be a repeat of what was
// kept before the topic's bound was lowered is the leader's to judge.
func tooLarge(t *cluster.Topic, r *record.Record) error {
	most := t.Settings.MaxMessageBytes
	if !r.Producer.IsZero() || r.Idempotency != nil {
		most = cluster.MaxMessageBytes
	}
	if n := r.Bytes(); n > most {
		return TooLarge(t.Name, n, t.Settings.MaxMessageBytes)
	}
	return nil
}

// TooLarge is the refusal of a record of n bytes where most are allowed.
func TooLarge(topic string, n, most int) error {
	return fault.New(fault.MessageTooLarge, "a record of topic %q takes at most %d bytes of key, headers and value together (max_message_bytes); this one has %d", topic, most, n).
		With("max_message_bytes", most)
}

// framingBytes is about what a record costs beside its own bytes.
const framingBytes = 128

func (p *Publisher) enqueue(t *cluster.Topic, index ident.Index, req *Request, w *waiter) {
	refused := Result{Topic: t.Name, Partition: index}
	w.deadline = time.Now().Add(req.Timeout)
	w.bytes = int64(req.Record.Bytes() + framingBytes)
	if !p.gate.tryEnter(w.bytes) {
		ctx, cancel := context.WithDeadline(context.Background(), w.deadline)
		err := p.gate.enter(ctx, w.bytes)
		cancel()
		if err != nil {
			refused.Err = fault.New(fault.Throttled, "the node has as many bytes of records under way (%d) as leaders take in good time, and took no more within %s; nothing was kept", p.gate.limit(), req.Timeout)
			p.finish(w, refused)
			return
		}
	}
	for {
		l, ok := p.lane(t, index)
		if !ok {
			p.gate.leave(w.bytes)
			refused.Err = fault.New(fault.Draining, "the node is shutting down; nothing was kept")
			p.finish(w, refused)
			return
		}
		if l.add(req, w) {
			p.metrics.inFlight.Add(float64(w.bytes))
			return
		}
		// The lane was given up in between: take its successor.
	}
}

func (p *Publisher) lane(t *cluster.Topic, index ident.Index) (*lane, bool) {
	ref := t.Ref(index)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return nil, false
	}
	l := p.lanes[ref]
	if l == nil {
		l = &lane{p: p, ref: ref, topic: t.Name}
		p.lanes[ref] = l
	}
	p.busy.Add(1)
	return l, true
}

// settled counts records out.
func (p *Publisher) settled(records int, bytes int64) {
	p.metrics.inFlight.Sub(float64(bytes))
	p.gate.leave(bytes)
	p.busy.Add(-records)
}

// Run tells the lanes of new leaders until ctx ends, so that what waits for one
// is on its way the moment it is known.
func (p *Publisher) Run(ctx context.Context) error {
	if p.cfg.Changes == nil {
		return nil
	}
	for index := uint64(0); ; {
		s, err := p.cfg.Changes.Next(ctx, index)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, l := range p.lanesOf(s, index) {
			l.moved(s)
		}
		index = s.Index
	}
}

// lanesOf are the lanes of the topics that changed since an index.
func (p *Publisher) lanesOf(s *cluster.Snapshot, since uint64) (out []*lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.spreads {
		if s.ByID[id] == nil {
			delete(p.spreads, id)
		}
	}
	for ref, l := range p.lanes {
		if t := s.ByID[ref.Topic]; t == nil || t.Modified > since {
			out = append(out, l)
		}
	}
	return out
}

// forget drops a lane that has nothing to do and whose partition is gone.
func (p *Publisher) forget(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lanes[l.ref] == l {
		delete(p.lanes, l.ref)
	}
}

// Drain refuses new records and waits until those under way are answered.
func (p *Publisher) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	idle := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		p.busy.Wait() // every record ends at its deadline, so this does too
		close(idle)
	})
	select {
	case <-idle:
		g.Wait()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
