package deliver

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// catchUpBytes bounds one read of the log by a reader behind the ring.
const catchUpBytes = 128 << 10

// step reads on in one partition. keep says that the part may have more to
// read at once.
func (p *part) step(ctx context.Context, lim Limit) (ev Event, keep bool) {
	for {
		if !p.holds() {
			if ev, keep, done := p.fill(ctx, lim.Ring); done {
				return ev, keep
			}
		}
		for p.holds() {
			k := p.held[p.done]
			run := k.run(p.next, &p.sub.match, lim)
			if run.Len() > 0 {
				run.live = p.live
				p.moveTo(run.Offset(run.Len()-1)+1, k.epoch)
				if p.next >= k.next || run.to == len(k.marks) {
					p.moveTo(k.next, k.epoch)
					p.drop()
				}
				return Event{Kind: Messages, Run: run}, true
			}
			p.moveTo(max(p.next, k.next), k.epoch)
			p.drop()
		}
		if !p.live { // a piece of the log without a match: let others have their turn
			return Event{Kind: Busy}, true
		}
	}
}

// holds reports whether there is a block in hand.
func (p *part) holds() bool { return p.done < len(p.held) }

// drop lets the block in hand go.
func (p *part) drop() {
	p.held[p.done] = nil
	if p.done++; !p.holds() {
		p.held, p.done = p.held[:0], 0
	}
}

func (p *part) moveTo(o ident.Offset, e ident.Epoch) {
	if o != p.next {
		p.sub.passed.Add(int64(o - p.next))
		p.next, p.epoch, p.sub.moved = o, e, true
	}
}

// fill finds the block to go on with, in the ring or in the log. done is false
// once there is one.
func (p *part) fill(ctx context.Context, ringOnly bool) (ev Event, keep, done bool) {
	out := p.feed.at(p, p.next)
	switch {
	case out.ended != nil:
		return p.end(out.ended)
	case p.life >= 0 && out.life != p.life:
		// The ring began anew: perhaps the log is another one from here on. A
		// read of the log finds that out.
		p.feed.leave(p)
	case out.wait && p.life >= 0:
		return Event{}, false, true
	case out.block != nil && p.life >= 0:
		p.held, p.live = append(p.held, out.block), true
		return Event{}, false, false
	case out.wait:
		p.feed.leave(p)
	}
	if ringOnly {
		return Event{Kind: Behind}, true, true
	}
	return p.readLog(ctx, out.life)
}

// readLog reads a piece of the log.
func (p *part) readLog(ctx context.Context, life int) (ev Event, keep, done bool) {
	src := p.sub.hub.source
	res, err := src.Read(ctx, rpc.Read{Partition: p.feed.ref, Offset: p.next, MaxBytes: catchUpBytes})
	if p.epoch != 0 && (err == nil || fault.Is(err, fault.OffsetNotFound)) {
		// What was read so far must be part of this log.
		end, endErr := src.EpochEnd(p.feed.ref, p.epoch)
		switch {
		case endErr != nil:
			err = endErr
		case p.next > max(end, res.Bounds.Start):
			return p.lose(ReasonTruncated, max(end, res.Bounds.Start), res.Bounds), true, true
		}
	}
	switch {
	case fault.Is(err, fault.OffsetExpired):
		return p.lose(ReasonExpired, res.Bounds.Start, res.Bounds), true, true
	case fault.Is(err, fault.OffsetNotFound) && p.epoch != 0:
		return p.lose(ReasonTruncated, res.Bounds.HW, res.Bounds), true, true
	case fault.Is(err, fault.OffsetNotFound):
		err = nil // ahead of the log, by the client's own number
	case err != nil:
		return p.unavailable(err)
	}
	p.pause, p.life = 0, life
	if len(res.Batches) == 0 {
		if !p.feed.park(p, p.next, life) {
			return Event{Kind: Busy}, true, true
		}
		return Event{}, false, true
	}
	p.sub.hub.metrics.logReads.Inc()
	p.live = false
	for b := res.Batches; len(b) > 0; {
		first, rest, err := record.Cut(b)
		if err == nil {
			b = rest
			var k *block
			if k, err = encode(p.sub.topic.Name, first, &p.sub.match); err == nil {
				p.held = append(p.held, k)
				continue
			}
		}
		p.held, p.done = nil, 0
		return p.end(err)
	}
	return Event{}, false, false
}

// lose tells of a gap and goes on behind it.
func (p *part) lose(reason string, resume ident.Offset, b rpc.Bounds) Event {
	g := gapOf([]loss{{reason: reason, partition: p.index, requested: p.next, earliest: b.Start, end: b.HW}})
	p.moveTo(resume, b.Epoch)
	p.epoch = b.Epoch
	g.Cursor = p.sub.Cursor()
	p.sub.hub.metrics.gaps.WithLabelValues(reason).Inc()
	return Event{Kind: Lost, Gap: g}
}

// end gives up on the partition. One that is damaged is no reason to keep the
// others of the topic from their reader, who is told.
func (p *part) end(err error) (ev Event, keep, done bool) {
	if fault.Lasting(err) && !p.sub.Single() {
		return Event{Kind: Stuck, Err: fault.As(err).With("partition", p.index)}, false, true
	}
	return Event{Kind: Ended, Err: err}, false, true
}

// unavailable tries again a little later.
func (p *part) unavailable(err error) (Event, bool, bool) {
	err = p.sub.hub.explain(p.feed.ref, err)
	if !passing(err) {
		return p.end(err)
	}
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	p.retry = time.AfterFunc(p.pause, func() { p.sub.ready(p) })
	return Event{}, false, true
}
