package deliver

import (
	"context"
	"sync/atomic"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// catchUpBytes bounds one read of the log by a reader behind the ring.
const catchUpBytes = 128 << 10

// part is where a subscription stands in one partition. It belongs to the
// subscription's owner, but for the time between its being parked and its being
// woken: then its place is the feed's, which moves it past what the filter does
// not let through.
type part struct {
	sub  *Subscription
	feed *feed
	link *part // the next one in a line, or of the woken
	bay  *bay  // where it is parked; nil: it wants several keys

	next  atomic.Int64 // the offset to read next; any goroutine may look
	told  ident.Offset // next when the client last heard of it
	block *block       // being worked on
	log   *stretch     // nil: block is all there is
	epoch ident.Epoch  // a leader epoch in which the log reached next
	index ident.Index
	life  int32 // of the ring when next was last known to be part of the log
	spot  int32 // in the bay's list, away or apart; guarded by feed.mu
	live  bool  // block comes from the ring
	ahead bool  // it was parked ahead of the feed; guarded by feed.mu
	waits bool  // it was parked, and the owner has not heard that it was woken
}

// unseen is the life of a ring that was not looked at yet.
const unseen = -1

// stretch is what a part that is not at the end of its partition needs beside.
type stretch struct {
	blocks []*block      // of the piece of the log in hand, after part.block
	pause  time.Duration // before the next try, while the partition is unavailable
	retry  *time.Timer
}

// stand is a place between two records of a partition.
type stand struct {
	next  ident.Offset
	epoch ident.Epoch // in which the log reached next
}

func (p *part) offset() ident.Offset { return ident.Offset(p.next.Load()) }

// stand is where the part stands now.
func (p *part) stand() stand {
	if p.waits {
		return p.feed.stand(p)
	}
	return stand{p.offset(), p.epoch}
}

func (p *part) place() cursor.Place {
	at := p.stand()
	return cursor.Place{Partition: p.index, Epoch: at.epoch, Offset: at.next}
}

// pass moves a part that is parked past what it does not want. Its feed's mutex
// is held.
func (p *part) pass(to stand) {
	if to.next > p.offset() {
		p.next.Store(int64(to.next))
		p.epoch = to.epoch
	}
}

// step reads on in one partition. keep says that the part may have more to
// read at once.
func (p *part) step(ctx context.Context, lim Limit) (ev Event, keep bool) {
	for {
		if p.block == nil {
			if ev, keep, done := p.fill(ctx, lim.Ring); done {
				return ev, keep
			}
		}
		for p.block != nil {
			k := p.block
			run := k.run(p.offset(), &p.sub.match, lim)
			switch {
			case run.Len() == 0:
				p.moveTo(max(p.offset(), k.next), k.epoch)
				p.drop()
				continue
			case run.to == len(k.marks):
				p.moveTo(k.next, k.epoch)
				p.drop()
			default:
				p.moveTo(run.Offset(run.Len()-1)+1, k.epoch)
			}
			run.live = p.live
			return Event{Kind: Messages, Run: run}, true
		}
		if !p.live { // a piece of the log without a match: let others have their turn
			return Event{Kind: Busy}, true
		}
	}
}

// drop lets the block in hand go, for the next one of the piece.
func (p *part) drop() {
	p.block = nil
	if p.log == nil {
		return
	}
	if rest := p.log.blocks; len(rest) > 0 {
		p.block, rest[0] = rest[0], nil
		p.log.blocks = rest[1:]
		return
	}
	p.log = nil
}

func (p *part) moveTo(o ident.Offset, e ident.Epoch) {
	if o != p.offset() {
		p.next.Store(int64(o))
		p.epoch = e
	}
}

// fill finds the block to go on with, in the ring or in the log. done is false
// once there is one.
func (p *part) fill(ctx context.Context, ringOnly bool) (ev Event, keep, done bool) {
	out := p.feed.at(p)
	switch {
	case out.ended != nil:
		return p.end(out.ended)
	case out.parked:
		p.waits, p.log = true, nil
		return Event{}, false, true
	case out.block != nil:
		p.block, p.live = out.block, true
		return Event{}, false, false
	case ringOnly:
		return Event{Kind: Behind}, true, true
	}
	return p.readLog(ctx, out)
}

// readLog reads a piece of the log. Of what it finds only what lies before the
// end that the ring had in the outlook is known to be what the ring goes on
// from: the rest may be cut off, and others written in its place, without a new
// life of the ring.
func (p *part) readLog(ctx context.Context, out outlook) (ev Event, keep, done bool) {
	src, next := p.sub.hub.source, p.offset()
	res, err := src.Tail(ctx, rpc.Read{Partition: p.feed.ref, Offset: next, MaxBytes: catchUpBytes})
	if p.epoch != 0 && (err == nil || fault.Is(err, fault.OffsetNotFound)) {
		// What was read so far must be part of this log.
		end, endErr := src.EpochEnd(ctx, p.feed.ref, p.epoch)
		switch {
		case endErr != nil:
			err = endErr
		case next > max(end, res.Bounds.Start):
			return p.lose(ReasonTruncated, max(end, res.Bounds.Start), res.Bounds), true, true
		}
	}
	switch {
	case fault.Is(err, fault.OffsetExpired):
		return p.lose(ReasonExpired, res.Bounds.Start, res.Bounds), true, true
	case fault.Is(err, fault.OffsetNotFound) && p.epoch != 0:
		return p.unavailable(outdated(p.feed.ref))
	case fault.Is(err, fault.OffsetNotFound):
		err = nil // ahead of the log, by the client's own number
	case err != nil:
		return p.unavailable(err)
	}
	p.log, p.life = nil, unseen
	if len(res.Batches) == 0 {
		if next <= out.end {
			p.life = out.life
		}
		if !p.feed.park(p, out.life) {
			return Event{Kind: Busy}, true, true
		}
		p.waits = true
		return Event{}, false, true
	}
	p.sub.hub.metrics.logReads.Inc()
	piece := &stretch{}
	for b := res.Batches; len(b) > 0; {
		first, rest, err := record.Cut(b)
		if err != nil {
			return p.end(err)
		}
		k, err := encode(p.sub.topic.Name, first, &p.sub.match)
		if err != nil {
			return p.end(err)
		}
		piece.blocks, b = append(piece.blocks, k), rest
	}
	if piece.blocks[len(piece.blocks)-1].next <= out.end {
		p.life = out.life
	}
	p.live, p.log = false, piece
	p.drop()
	return Event{}, false, false
}

// lose tells of a gap and goes on behind it.
func (p *part) lose(reason string, resume ident.Offset, b rpc.Bounds) Event {
	g := gapOf([]loss{{reason: reason, partition: p.index, requested: p.offset(), earliest: b.Start, end: b.HW}})
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
	if p.log == nil {
		p.log = &stretch{}
	}
	p.log.pause = min(max(2*p.log.pause, firstPause), lastPause)
	p.log.retry = time.AfterFunc(p.log.pause, func() { p.sub.ready(p) })
	return Event{}, false, true
}
