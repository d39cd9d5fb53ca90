package rpc

import (
	"context"
	"reflect"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

// MaxWait bounds how long a Read or Bounds may wait for records: whoever waits
// longer asks again.
const MaxWait = 10 * time.Second

// maxBounds is how many partitions one Bounds may name.
const maxBounds = 4096

func (v brokerService) backend() (BrokerBackend, error) {
	if b := v.s.broker.Load(); b != nil {
		return *b, nil
	}
	return nil, absent(fault.LeaderUnavailable, "broker")
}

// at is where a call about a partition goes.
func (v brokerService) at(partition *tidewirepb.Partition) (BrokerBackend, ident.Partition, error) {
	b, err := v.backend()
	if err != nil {
		return nil, ident.Partition{}, err
	}
	p, err := partitionOf(partition)
	if err != nil {
		return nil, p, refuse(fault.As(err))
	}
	return b, p, nil
}

func (v brokerService) Read(ctx context.Context, r *tidewirepb.ReadRequest) (*tidewirepb.ReadResponse, error) {
	b, p, err := v.at(r.Partition)
	if err != nil {
		return nil, err
	}
	read := Read{Partition: p, Offset: ident.Offset(r.Offset), MaxBytes: int(min(r.MaxBytes, record.MaxBatchBytes))}
	got, err := b.Read(ctx, read)
	if err == nil && len(got.Batches) == 0 && r.WaitNs > 0 {
		if v.wait(ctx, b, read, time.Duration(r.WaitNs)) {
			got, err = b.Read(ctx, read)
		}
	}
	if len(got.Batches) > MaxSendBytes {
		return nil, statusOf(fault.New(fault.Internal, "a read gave %d bytes; a message takes %d", len(got.Batches), MaxSendBytes))
	}
	return &tidewirepb.ReadResponse{Batches: got.Batches, Bounds: boundsMessage(got.Bounds), Problem: problemOf(err)}, nil
}

// wait says whether there may be something to read by now.
func (v brokerService) wait(ctx context.Context, b BrokerBackend, r Read, limit time.Duration) bool {
	more, err := b.Wait(r.Partition, r.Offset)
	if err != nil {
		return true // the read says it
	}
	timer := time.NewTimer(min(limit, MaxWait))
	defer timer.Stop()
	select {
	case <-more:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-v.s.stopping:
	}
	return false
}

func (v brokerService) Bounds(ctx context.Context, r *tidewirepb.BoundsRequest) (*tidewirepb.BoundsResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	if len(r.Items) > maxBounds {
		return nil, refuse(fault.New(fault.Invalid, "bounds of %d partitions at once; %d are allowed", len(r.Items), maxBounds))
	}
	asked := make([]BoundsOf, len(r.Items))
	for i, it := range r.Items {
		p, err := partitionOf(it.Partition)
		if err != nil {
			return nil, refuse(fault.As(err))
		}
		asked[i] = BoundsOf{p, ident.Offset(it.After)}
	}
	answer, ready := boundsNow(b, asked)
	if !ready && r.WaitNs > 0 {
		v.waitAny(ctx, b, asked, time.Duration(r.WaitNs))
		answer, _ = boundsNow(b, asked)
	}
	return answer, nil
}

// boundsNow also says whether nothing is to be waited for: some partition has what
// is waited for, or an error, or none waits at all.
func boundsNow(b BrokerBackend, asked []BoundsOf) (*tidewirepb.BoundsResponse, bool) {
	out := &tidewirepb.BoundsResponse{Items: make([]*tidewirepb.BoundsResponse_Item, len(asked))}
	ready, waits := false, false
	for i, a := range asked {
		bounds, err := b.Bounds(a.Partition)
		ready = ready || err != nil || a.After >= 0 && bounds.HW > a.After
		waits = waits || a.After >= 0
		out.Items[i] = &tidewirepb.BoundsResponse_Item{Bounds: boundsMessage(bounds), Problem: problemOf(err)}
	}
	return out, ready || !waits
}

func (v brokerService) waitAny(ctx context.Context, b BrokerBackend, asked []BoundsOf, limit time.Duration) {
	timer := time.NewTimer(min(limit, MaxWait))
	defer timer.Stop()
	cases := []reflect.SelectCase{recv(timer.C), recv(ctx.Done()), recv(v.s.stopping)}
	for _, a := range asked {
		if a.After < 0 {
			continue
		}
		more, err := b.Wait(a.Partition, a.After)
		if err != nil {
			return
		}
		cases = append(cases, recv(more))
	}
	reflect.Select(cases)
}

func recv[T any](c <-chan T) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}

func (v brokerService) OffsetAt(ctx context.Context, r *tidewirepb.OffsetAtRequest) (*tidewirepb.OffsetAtResponse, error) {
	b, p, err := v.at(r.Partition)
	if err != nil {
		return nil, err
	}
	o, err := b.OffsetAt(ctx, p, r.Ms)
	return &tidewirepb.OffsetAtResponse{Offset: int64(o)}, statusOf(err)
}

func (v brokerService) EpochEnd(_ context.Context, r *tidewirepb.EpochEndRequest) (*tidewirepb.EpochEndResponse, error) {
	b, p, err := v.at(r.Partition)
	if err != nil {
		return nil, err
	}
	o, err := b.EpochEnd(p, ident.Epoch(r.Epoch))
	return &tidewirepb.EpochEndResponse{Offset: int64(o)}, statusOf(err)
}

// Probe is answered by a node without a broker as well: what is asked is whether it
// lives.
func (v brokerService) Probe(ctx context.Context, _ *tidewirepb.ProbeRequest) (*tidewirepb.ProbeResponse, error) {
	b := v.s.broker.Load()
	if b == nil {
		return &tidewirepb.ProbeResponse{Life: lifeMessage(v.s.cfg.Self())}, nil
	}
	life, err := (*b).Probe(ctx)
	return &tidewirepb.ProbeResponse{Life: lifeMessage(life)}, statusOf(err)
}

// followMoment is how long a replication stream has to end by itself when the server
// stops: what waits to receive ends only with the stream.
const followMoment = 100 * time.Millisecond

func (s *Server) serveFollow(f *framed, b BrokerBackend) *ending {
	st := &followerStream{line: f, ended: make(chan struct{})}
	err := s.streaming(f.ctx, followMoment, st.ended, func(ctx context.Context) error {
		var nothing FromFollower
		first := followRequest{from: &nothing}
		if err := st.recv(&first); err != nil {
			return err
		}
		if first.opening == nil {
			return fault.New(fault.Invalid, "a replication stream begins with who follows whom")
		}
		return b.ServeFollow(ctx, *first.opening, st)
	})
	return &ending{problem: err}
}

type followerStream struct {
	line    *framed
	message encoder // being sent
	once    sync.Once
	ended   chan struct{} // closed by End
}

func (s *followerStream) End() { s.once.Do(func() { close(s.ended) }) }

func (s *followerStream) Send(m *FromLeader) error { return s.with(m, s.line.send) }

func (s *followerStream) Post(m *FromLeader) error { return s.with(m, s.line.post) }

func (s *followerStream) Ready() bool { return s.line.ready() }

func (s *followerStream) with(m *FromLeader, send func(byte, *encoder) error) error {
	n := 0
	for i := range m.Pushes {
		n += len(m.Pushes[i].Batches)
	}
	if n > MaxSendBytes {
		return fault.New(fault.Internal, "pushes of %d bytes in one message; %d are allowed", n, MaxSendBytes)
	}
	(&followResponse{m}).encode(&s.message)
	return send(frameMessage, &s.message)
}

func (s *followerStream) Recv(m *FromFollower) error { return s.recv(&followRequest{from: m}) }

func (s *followerStream) recv(m *followRequest) error {
	b, _, err := s.line.next()
	if err != nil {
		return fault.New(fault.LeaderUnavailable, "the follower's stream broke: %w", err)
	}
	return m.decode(b)
}
