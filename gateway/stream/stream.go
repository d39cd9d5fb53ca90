package stream

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/turn"
	"tidewire/internal/wire"
)

// Intervals of a stream.
const (
	commentEvery = 15 * time.Second // proxies cut what is silent for longer
	idEvery      = time.Second
	idEvents     = 64
)

// stream is one subscription as server-sent events. What it says is found by
// whoever writes it: a turn, or the goroutine of its request.
type stream struct {
	set     *Set
	sub     *deliver.Subscription
	conn    *connection.Connection
	address string
	release func()                  // of its seat
	ended   atomic.Pointer[goodbye] // why it is to end; nil: it is not
	wake    chan struct{}           // of the request's goroutine; nil: turns write
	line    line                    // what they write to

	single    bool      // one partition is read
	since     int       // messages since the last id
	idAt      time.Time // when the last id was written
	commentAt time.Time // when the next comment is due
}

// poke has the stream looked at.
func (st *stream) poke() {
	if st.wake == nil {
		st.line.slot.Schedule()
		return
	}
	select {
	case st.wake <- struct{}{}:
	default: // it is awake already
	}
}

// compose puts together what there is to say; last: nothing will follow.
func (st *stream) compose(ctx context.Context, d *desk, now time.Time, logs bool) (to turn.Outcome, last bool) {
	d.reset()
	if g := st.ended.Load(); g != nil {
		st.part(d, g)
		return turn.Rest, true
	}
	if !now.Before(st.commentAt) {
		d.comment()
		st.commentAt = now.Add(commentEvery)
		st.sub.Refresh() // so that its id does not stay behind what it does not want
	}
	to, last = st.gather(ctx, d, now, logs)
	if !last && st.sub.Moved() && now.Sub(st.idAt) >= idEvery {
		d.position(st.cursor(now))
	}
	return to, last
}

// due is when something has to be said whatever happens.
func (st *stream) due() time.Time {
	if at := st.idAt.Add(idEvery); st.sub.Moved() && at.Before(st.commentAt) {
		return at
	}
	return st.commentAt
}

// gather reads what there is to read.
func (st *stream) gather(ctx context.Context, d *desk, now time.Time, logs bool) (to turn.Outcome, last bool) {
	defer st.spell(d)
	for bytes := 0; bytes < turnBytes; {
		switch ev := st.sub.Next(ctx, deliver.Limit{Messages: turnMessages, Bytes: turnBytes - bytes, Ring: !logs}); ev.Kind {
		case deliver.Idle:
			return turn.Rest, false
		case deliver.Busy:
			return turn.More, false
		case deliver.Behind:
			return turn.Behind, false
		case deliver.Messages:
			bytes += len(ev.Run.Lines())
			st.messages(d, ev.Run, now)
		case deliver.Lost:
			st.spell(d)
			d.event("gap", ev.Gap.Cursor, ev.Gap.AppendTo(wire.Begin(nil)).Close())
			st.idAt, st.since = now, 0
		case deliver.Stuck:
			st.spell(d)
			d.event("error", st.cursor(now), reply.Problem(ev.Err))
		case deliver.Ended:
			st.spell(d)
			d.event("error", st.cursor(now), reply.Problem(ev.Err))
			return turn.Rest, true
		}
	}
	return turn.More, false
}

// messages takes a run in. Where none of its messages has an id, or each the one
// that every stream gives it, it waits to be written as others write it.
func (st *stream) messages(d *desk, run deliver.Run, now time.Time) {
	switch {
	case st.single:
		d.pending = append(d.pending, run)
		st.sub.Told()
		st.idAt = now
	case st.since+run.Len() < idEvents:
		d.pending = append(d.pending, run)
		st.since += run.Len()
	default:
		st.spell(d)
		for i := range run.Len() {
			id := ""
			if st.since++; st.since >= idEvents {
				if i == run.Len()-1 {
					id = st.cursor(now)
				} else {
					id = st.sub.CursorAfter(run, i)
					st.idAt, st.since = now, 0
				}
			}
			d.event("message", id, run.Message(i))
		}
		d.runs = append(d.runs, run)
	}
}

// spell writes out the messages that wait.
func (st *stream) spell(d *desk) {
	if !st.single {
		d.messages(nil)
		return
	}
	scope := st.sub.Scope()
	d.messages(&scope)
}

// cursor is where the stream stands, to be written as an id.
func (st *stream) cursor(now time.Time) string {
	st.idAt, st.since = now, 0
	return st.sub.Cursor()
}

// wrote counts what the client was sent.
func (st *stream) wrote(tally *deliver.Tally, runs []deliver.Run, now time.Time) {
	for _, r := range runs {
		tally.Wrote(r, now)
		st.conn.Out.Add(int64(r.Len()))
	}
}

// retry is when a client of a stream that breaks comes back: jittered, so that
// the clients of a node that breaks do not come back at once.
func retry() time.Duration { return time.Second + rand.N(2*time.Second) }
