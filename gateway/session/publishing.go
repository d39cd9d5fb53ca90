package session

import (
	"context"

	"tidewire/gateway/access"
	"tidewire/gateway/publish"
	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// publish sends a record on its way; its answer comes when it has arrived.
func (s *session) publish(ctx context.Context, f *wire.Frame) error {
	if err := s.refusesNew(); err != nil {
		return err
	}
	p := &f.Publication
	if err := s.grant.May(access.Publish, p.Topic); err != nil {
		return err
	}
	// Over its rate a client is read no further until it is within.
	if err := s.m.cfg.Quota.Wait(ctx, s.client); err != nil {
		return err
	}
	s.conn.In.Add(1)
	req := publish.Request{Topic: p.Topic, Partition: p.Partition, Record: p.Record}
	req.Record.Producer, req.Record.Sequence = p.Producer, p.Sequence
	switch p.Acks {
	case "leader":
		req.Acks = rpc.AcksLeader
	case "none":
		req.Acks = rpc.AcksNone
	}
	req.Tag = publish.Tag{ID: f.ID, Bytes: s.fly(&req), Owner: s.slot.Number()}
	s.m.cfg.Publisher.Publish(req, s.arrived)
	return nil
}

// void uses up the sequence number of a record that was refused for what it
// is, so that the records behind it are not refused for a gap. The refusal is
// answered once that is kept.
func (s *session) void(f *wire.Frame, refusal error) {
	p := &f.Publication
	err := s.refusesNew()
	if err == nil {
		err = s.grant.May(access.Publish, p.Topic)
	}
	if err != nil {
		s.push(reply.Frame(f.ID, s.refused(err)))
		return
	}
	req := publish.Request{
		Topic: p.Topic, Partition: p.Partition, Void: true,
		Record: record.Record{Producer: p.Producer, Sequence: p.Sequence},
	}
	req.Tag = publish.Tag{ID: f.ID, Bytes: s.fly(&req)}
	s.m.cfg.Publisher.Publish(req, func(res publish.Result) {
		// A refusal holds where its number is used up, or cannot be because there is
		// no such place.
		if res.Err == nil || !fault.As(res.Err).Kind.Retryable() && !sequencing(fault.KindOf(res.Err)) {
			res.Err = refusal
		}
		s.arrive(res)
	})
}

// refusesNew is why nothing new is begun on the connection.
func (s *session) refusesNew() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return fault.New(fault.Draining, "the node is shutting down; nothing was kept")
	}
	return nil
}

// flightBytes is about what a publish in flight costs beside its record.
const flightBytes = 256

// fly counts a publish in, and returns the bytes to count out.
func (s *session) fly(req *publish.Request) int {
	bytes := req.Record.Bytes() + flightBytes
	s.mu.Lock()
	s.inFlight++
	s.flying += bytes
	s.mu.Unlock()
	s.m.metrics.inFlight.Inc()
	return bytes
}

// arrive answers a publish. Answers that come together are written together.
func (s *session) arrive(res publish.Result) {
	s.m.metrics.inFlight.Dec()
	s.mu.Lock()
	s.inFlight--
	s.flying -= res.Tag.Bytes
	if !s.over {
		s.out = appendAnswer(s.separatedLocked(), &res)
	}
	s.relief.Signal()
	s.mu.Unlock()
	if !res.More {
		s.schedule()
	}
}

// appendAnswer adds what became of a publish. Of one that nobody waits for there
// is no offset, and no time.
func appendAnswer(b []byte, res *publish.Result) []byte {
	if res.Err != nil {
		return append(b, reply.Frame(res.Tag.ID, res.Err)...)
	}
	l := wire.Open(b, "published").ID(res.Tag.ID).Str("topic", res.Topic).Int("partition", int64(res.Partition))
	if res.Offset >= 0 {
		l.Int("offset", int64(res.Offset))
	}
	if res.Timestamp > 0 {
		l.Time("timestamp", res.Timestamp)
	}
	return l.Bool("duplicate", res.Duplicate).Close()
}

// sequencing reports faults of a producer's numbers, which come before the
// refusal of one record.
func sequencing(k fault.Kind) bool {
	switch k {
	case fault.OutOfOrderSequence, fault.UnknownProducer, fault.Fenced, fault.PartitionSealed:
		return true
	}
	return false
}
