package stream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/turn"
)

const (
	// ignoredBytes is how much a client may send on a stream's connection, where
	// nothing it sends is read: a request or two that it did not wait to send.
	ignoredBytes = 64 << 10
	// lingerTime is how long a client may take to close its end, once it has been
	// sent all. What it sent before that would otherwise have the kernel throw
	// away what the client has not read yet.
	lingerTime = 500 * time.Millisecond
)

// line is a stream's connection, taken from the server. The answer goes on in
// chunks, as the server began it: so its client can tell an end from a cut, and
// what is between the two finds the boundaries that the standard asks for. That
// the connection serves no other request is said in the answer's head.
type line struct {
	slot    turn.Slot
	socket  turn.Socket
	chunked bool           // a client of HTTP/1.0 knows no chunks
	writing sync.WaitGroup // until there are no more turns
	gone    chan struct{}  // closed once the connection is of no use any more
	over    atomic.Bool    // gone is closed
	said    atomic.Bool    // all is sent, and the client has its time to close
	ignored int            // bytes that the client may yet send; the listener's
}

// take makes the request's connection the stream's. What the server has read
// of it already is no matter: nobody reads what the client says. It is false
// where the server has no connection to give: over HTTP/2, in a test.
func (st *stream) take(w http.ResponseWriter, r *http.Request) (bool, error) {
	if r.ProtoMajor != 1 || r.TLS != nil {
		return false, nil
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l := &st.line
	l.socket.Take(conn, st.set.cfg.SlowConsumerTimeout)
	l.chunked = r.ProtoAtLeast(1, 1)
	l.gone = make(chan struct{})
	l.ignored = ignoredBytes
	l.writing.Add(1)
	st.set.cfg.Crew.Join(&l.slot, st)
	return true, nil
}

// Run is the listener. It serves the connection to its end, which it hears of: the client
// goes, or whoever writes is through with it. Until then it sleeps.
func (st *stream) Run() {
	l := &st.line
	if !st.Over() && l.socket.Hear(&l.ignored) && st.set.cfg.Crew.Sleep(&l.socket, st, &st.set.open) {
		return
	}
	defer st.leave()
	l.socket.Gone(l.ignored)
	st.cut()
	l.writing.Wait()
}

// Over says that whoever writes is through with the connection.
func (st *stream) Over() bool { return st.line.over.Load() || st.line.said.Load() }

// cut ends the connection at once.
func (st *stream) cut() {
	if !st.line.over.Swap(true) {
		close(st.line.gone)
		st.set.cfg.Crew.Wake(&st.line.socket) // to see that it is over
	}
	_ = st.line.socket.Close()
	st.line.slot.Schedule()
}

// life is a stream as the context of what its turns do: it ends with the
// connection.
type life stream

func (l *life) Deadline() (at time.Time, ok bool) { return at, false }
func (l *life) Done() <-chan struct{}             { return l.line.gone }
func (l *life) Value(any) any                     { return nil }

func (l *life) Err() error {
	if l.line.over.Load() {
		return context.Canceled
	}
	return nil
}

// Turn is for the workers.
func (st *stream) Turn(w *turn.Worker) turn.Outcome {
	if st.line.over.Load() {
		return st.quit()
	}
	d := st.set.desks[w.Number]
	now := time.Now()
	to, last := st.compose((*life)(st), d, now, w.Logs)
	st.line.slot.Alarm(st.due())
	return st.write(d, to, now, last)
}

// write sends what the turn has put together. A socket that does not take all
// of it at once gets a goroutine for the rest, and no turn until it has it.
func (st *stream) write(d *desk, to turn.Outcome, now time.Time, last bool) turn.Outcome {
	b := st.bytes(d, last)
	if len(b) == 0 {
		return to
	}
	n, err := st.line.socket.Try(d.attempt, b)
	switch {
	case err != nil:
		return st.lost(err)
	case n == len(b):
		st.wrote(d.tally, d.runs, now)
		if last {
			return st.finish()
		}
		return to
	}
	st.set.metrics.waiting.Inc()
	share := st.set.cfg.Crew.Owe(len(b) - n)
	if share == nil {
		return st.tooMuch()
	}
	// The runs are not kept meanwhile: they may be large, and their reader slow.
	left, tally, messages := slices.Clone(b[n:]), st.set.cfg.Deliveries.Tally(deliver.SSE), int64(0)
	for _, r := range d.runs {
		tally.Wrote(r, now)
		messages += int64(r.Len())
	}
	st.set.open.Go(func() {
		err := st.line.socket.Rest(left)
		share.Close()
		if err != nil {
			st.lost(err)
			return
		}
		tally.Tell()
		st.conn.Out.Add(messages)
		if last {
			st.finish()
			return
		}
		st.line.slot.GiveBack(turn.More)
	})
	return turn.Kept
}

// bytes is what is on the desk, as the connection gets it.
func (st *stream) bytes(d *desk, last bool) []byte {
	switch {
	case d.empty():
		return nil
	case !st.line.chunked:
		return d.plain()
	case last:
		return append(d.chunk(), lastChunk...)
	}
	return d.chunk()
}

// finish ends a connection whose client has been sent all.
func (st *stream) finish() turn.Outcome {
	st.line.socket.Finish(lingerTime)
	st.line.said.Store(true)
	st.set.cfg.Crew.Wake(&st.line.socket) // to wait for the client's end, but not for ever
	return st.quit()
}

// lost ends a connection that cannot be written to.
func (st *stream) lost(err error) turn.Outcome {
	st.cut()
	if st.line.socket.Stuck() {
		st.tooSlow("it took nothing")
	} else {
		st.debug(st.sub.Topic().Name, err)
	}
	return st.quit()
}

// tooMuch ends a stream that would have the node hold more than it may for those
// who do not take it.
func (st *stream) tooMuch() turn.Outcome {
	st.tooSlow("the node holds as much as it may for clients that do not read")
	st.cut()
	st.line.socket.Abandon()
	return st.quit()
}

func (st *stream) tooSlow(why string) {
	st.set.cfg.Deliveries.Slow.Inc()
	st.set.cfg.Logger.Info("closed a slow consumer", "transport", deliver.SSE, "code", reply.CloseSlowConsumer, "address", st.address, "topic", st.sub.Topic().Name, "reason", why)
}

// quit ends the writing side: there are no more turns.
func (st *stream) quit() turn.Outcome {
	st.line.slot.Leave()
	st.line.writing.Done()
	return turn.Kept
}
