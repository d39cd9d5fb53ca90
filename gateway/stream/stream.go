package stream

import (
	"context"
	"sync/atomic"
	"time"

	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/internal/wire"
)

// writeAhead is how much a stream gathers before it writes.
const writeAhead = 64 << 10

// stream is one subscription as server-sent events.
type stream struct {
	streams *Set
	sub     *deliver.Subscription
	wake    <-chan struct{}
	out     eventWriter

	poke  func()                 // wakes the stream's goroutine
	ended atomic.Pointer[string] // why it is to end; nil: it is not
	conn  *connection.Connection

	sinceID int           // messages since the last id
	idAt    time.Time     // when the last id was written
	runs    []deliver.Run // in the buffer
}

// begin gives the client a place to resume from before there is any message.
func (st *stream) begin(gap *deliver.Gap) {
	st.out.retry(retry())
	if gap != nil {
		st.out.event("gap", gap.Cursor, gap.AppendTo(wire.Begin(nil)).Close())
	} else {
		st.out.position(st.sub.Cursor())
	}
	st.idAt = time.Now()
}

func (st *stream) run(ctx context.Context) error {
	comment := time.NewTicker(commentEvery)
	defer comment.Stop()
	id := time.NewTimer(idEvery)
	defer id.Stop()
	for {
		if reason := st.ended.Load(); reason != nil {
			return st.parting(*reason)
		}
		idle, ended := st.gather(ctx)
		if ended {
			return st.out.flush()
		}
		if st.sub.Moved() && time.Since(st.idAt) >= idEvery {
			st.out.position(st.cursor())
		}
		if err := st.flush(); err != nil {
			return err
		}
		if !idle {
			select {
			case <-st.streams.drain:
				return st.closing()
			case <-ctx.Done():
				return ctx.Err()
			default:
				continue
			}
		}
		var due <-chan time.Time
		if st.sub.Moved() {
			id.Reset(time.Until(st.idAt.Add(idEvery)))
			due = id.C
		}
		select {
		case <-st.wake:
		case <-due:
		case <-comment.C:
			st.out.comment()
			st.sub.Refresh() // so that its id does not stay behind what it does not want
		case <-st.streams.drain:
			return st.closing()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// gather fills the buffer with what there is to read. idle: there is no more;
// ended: there never will be.
func (st *stream) gather(ctx context.Context) (idle, ended bool) {
	for len(st.out.buf) < writeAhead {
		ev := st.sub.Next(ctx, deliver.Limit{Messages: 256, Bytes: writeAhead})
		switch ev.Kind {
		case deliver.Idle:
			return true, false
		case deliver.Busy:
			if ctx.Err() != nil {
				return false, false
			}
		case deliver.Messages:
			st.messages(ev.Run)
		case deliver.Lost:
			st.out.event("gap", ev.Gap.Cursor, ev.Gap.AppendTo(wire.Begin(nil)).Close())
			st.idAt, st.sinceID = time.Now(), 0
		case deliver.Stuck:
			st.out.event("error", st.sub.Cursor(), reply.Problem(ev.Err))
		case deliver.Ended:
			st.out.event("error", st.sub.Cursor(), reply.Problem(ev.Err))
			return false, true
		}
	}
	return false, false
}

func (st *stream) messages(run deliver.Run) {
	st.runs = append(st.runs, run)
	for i := range run.Len() {
		id := ""
		if st.sinceID++; st.sub.Single() || st.sinceID >= idEvents {
			if i == run.Len()-1 {
				id = st.cursor()
			} else {
				id = st.sub.CursorAfter(run, i)
				st.idAt, st.sinceID = time.Now(), 0
			}
		}
		st.out.event("message", id, run.Message(i))
	}
}

// cursor is where the stream stands, to be written as an id.
func (st *stream) cursor() string {
	st.idAt, st.sinceID = time.Now(), 0
	return st.sub.Cursor()
}

func (st *stream) flush() error {
	err := st.out.flush()
	for i, r := range st.runs {
		if err == nil {
			st.streams.metrics.Wrote(deliver.SSE, r)
			st.conn.Out.Add(int64(r.Len()))
		}
		st.runs[i] = deliver.Run{}
	}
	st.runs = st.runs[:0]
	return err
}

// closing says goodbye to a client that should come back, here or elsewhere.
func (st *stream) closing() error {
	after := st.streams.parting.Return(time.Now())
	cur := st.sub.Cursor()
	st.out.retry(after)
	st.out.event("closing", cur, wire.Begin(nil).Str("reason", "draining").Str("retry_after", after.String()).Str("cursor", cur).Close())
	return st.out.flush()
}
