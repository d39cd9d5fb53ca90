package session_test

import (
	"context"
	"sync"

	"tidewire/gateway/publish"
	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

// publisher keeps in memory what sessions publish, where they read it.
type publisher struct {
	*memlog.Broker

	mu    sync.Mutex
	hold  chan struct{} // not nil: publishes wait until it is closed
	voids []int64
	seen  map[writer]int64 // next sequence
	wait  sync.WaitGroup
}

type writer struct {
	partition ident.Partition
	producer  ident.ProducerID
}

func newPublisher() *publisher {
	b := memlog.New()
	b.MaxMessageBytes = 64 << 10
	return &publisher{Broker: b, seen: map[writer]int64{}}
}

// Publish answers at once, or when hold is closed.
func (p *publisher) Publish(req publish.Request, done func(publish.Result)) {
	req.Record.Key = append([]byte(nil), req.Record.Key...)
	req.Record.Value = append([]byte(nil), req.Record.Value...)
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold == nil {
		done(p.keep(req))
		return
	}
	p.wait.Go(func() { <-hold; done(p.keep(req)) })
}

func (p *publisher) keep(req publish.Request) publish.Result {
	res := p.keepUntagged(req)
	res.Tag = req.Tag
	if req.Acks == rpc.AcksNone && res.Err == nil { // nobody waited for a place
		res.Offset, res.Timestamp = -1, 0
	}
	return res
}

func (p *publisher) keepUntagged(req publish.Request) publish.Result {
	t, err := topology.Topic(context.Background(), p, req.Topic)
	if err != nil {
		return publish.Result{Err: err}
	}
	r := &req.Record
	if len(r.Key) == 0 {
		r.Key = nil
	}
	index := topology.Owner(t, ident.KeyHash(r.Key)).Index
	if req.Partition != nil {
		index = *req.Partition
	}
	ref := t.Ref(index)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.Bounds(context.Background(), ref); err != nil {
		return publish.Result{Err: fault.New(fault.PartitionNotFound, "no partition %d", index)}
	}
	if !r.Producer.IsZero() {
		w := writer{ref, r.Producer}
		if next := p.seen[w]; r.Sequence != next {
			return publish.Result{Err: fault.New(fault.OutOfOrderSequence, "expected %d", next).With("expected", next)}
		}
		p.seen[w]++
	}
	res := publish.Result{Topic: t.Name, Partition: index}
	if req.Void {
		p.voids = append(p.voids, r.Sequence)
		return res
	}
	res.Offset, res.Timestamp = p.AppendRecord(ref, r)
	return res
}
