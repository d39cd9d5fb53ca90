package sim

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// reader tails a partition, at its leader or at an in-sync follower, and moves from one
// to another.
type reader struct {
	w    *World
	part int
	next ident.Offset
	from *broker
	seen int // records
	of   ident.TopicID
}

func (r *reader) start() { r.w.in(r.w.edge, r.w.between(0, 50*time.Millisecond), r.poll) }

func (r *reader) later() {
	r.w.in(r.w.edge, r.w.between(10*time.Millisecond, 60*time.Millisecond), r.poll)
}

// choose picks whom to read from: rather a follower than the leader, as a gateway does
// that has one in its process.
func (r *reader) choose(leader bool) {
	t := r.w.routes().Topics[topicName]
	if t == nil {
		return
	}
	if r.of != t.ID {
		r.of, r.next = t.ID, 0
	}
	p := &t.Partitions[r.part]
	r.from = r.w.brokerOf(p.Leader)
	if n := len(p.ISR); !leader && n > 0 {
		r.from = r.w.brokerOf(p.ISR[r.w.rng.IntN(n)])
	}
}

func (r *reader) poll() {
	w := r.w
	if r.from == nil || w.chance(0.05) {
		r.choose(w.chance(0.4))
	}
	b := r.from
	if b == nil {
		r.later()
		return
	}
	req := rpc.Read{Partition: ident.Partition{Topic: r.of, Index: ident.Index(r.part)}, Offset: r.next, MaxBytes: w.set.ReadBytes}
	w.call(w.edge, b.p, w.set.Timeout, func(reply func(func())) {
		rep := b.replica(req.Partition)
		if rep == nil {
			reply(func() { r.choose(true); r.later() })
			return
		}
		res, err := rep.Read(context.Background(), req)
		w.served(b, &req, &res, err)
		reply(func() { r.took(&req, &res, err) })
	}, func(bool) { r.choose(true); r.later() })
}

func (r *reader) took(req *rpc.Read, res *rpc.ReadResult, err error) {
	switch {
	case req.Partition.Topic != r.of: // of what was before
	case err == nil:
		if next := r.w.read(req, res); next > r.next {
			r.seen += int(next - r.next)
			r.next = next
			if r.w.healing { // it is to come to the end
				r.w.in(r.w.edge, time.Millisecond, r.poll)
				return
			}
		}
	case fault.Is(err, fault.OffsetExpired):
		r.w.reached.hit("reader behind the log start")
		r.next = max(r.next, res.Bounds.Start)
	case fault.Is(err, fault.OffsetNotFound) && r.w.set.mayLose() && r.next > res.Bounds.HW:
		r.w.reached.hit("reader of what an unclean election lost")
		r.next = min(r.next, r.w.truth[r.part].hw)
		r.choose(true)
	default:
		r.choose(true)
	}
	r.later()
}
