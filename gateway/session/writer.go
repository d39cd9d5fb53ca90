package session

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/internal/wire"
)

const (
	// frameBytes is how much the writer gathers before it writes.
	frameBytes = 64 << 10
	// turnBytes and turnMessages are one subscription's turn in a frame.
	turnBytes    = 16 << 10
	turnMessages = 256
	// cursorEvery keeps the promise of a cursor within 2 s of moving.
	cursorEvery = time.Second
	// partingTime lies between the goodbye and the close: what the client has
	// sent before it read the goodbye gets its answer.
	partingTime = 200 * time.Millisecond
)

// writer is the goroutine that writes to the client.
type writer struct {
	s     *session
	frame []byte // headBytes of room, then lines with newlines between
	queue []*subscription
	spare []byte // of the outbox

	turn  []deliver.Run // of one subscription
	runs  []deliver.Run // in the frame
	head  []byte        // of a messages line
	pings int           // without a byte from the client since
	ping  *time.Timer
	tick  *time.Timer // of cursors
	due   bool        // tick is running
	dirty []*subscription

	always <-chan struct{} // closed

	draining bool        // said goodbye
	parting  *time.Timer // since then; nil: not yet
	parted   bool
}

func newWriter(s *session) *writer {
	always := make(chan struct{})
	close(always)
	w := &writer{s: s, frame: make([]byte, headBytes, 512), always: always}
	// A random phase, so that a node's connections do not beat together.
	w.ping = time.NewTimer(1 + rand.N(s.m.cfg.Ping))
	w.tick = time.NewTimer(cursorEvery)
	w.tick.Stop()
	return w
}

// run writes until the connection is to end and returns the close code, 0 where
// the client ended it.
func (w *writer) run(ctx context.Context) (code int) {
	for {
		control, v, drain := w.collect()
		switch {
		case v != nil:
			return w.finish(*v)
		case drain && !w.draining:
			w.goodbye()
		}
		if control != nil && w.s.socket.writeControl(opPong, control) != nil {
			return w.lost()
		}
		if !w.draining {
			w.pull(ctx)
		}
		if !w.flush() {
			return w.lost()
		}
		if w.parted && w.settled() {
			return w.finish(verdict{reply.CloseRestart, "restart"})
		}
		if v, ok := w.wait(); v != nil {
			return w.finish(*v)
		} else if !ok {
			return w.lost()
		}
	}
}

// wait returns when there is something to do, which is at once where a
// subscription has more to read. ok is false when the connection is lost.
func (w *writer) wait() (v *verdict, ok bool) {
	select { // the clocks come first: a client that has always more to read hears of them too
	case <-w.tick.C:
		w.cursors()
		return nil, true
	case <-w.ping.C:
		return w.beat()
	default:
	}
	var more <-chan struct{}
	if len(w.queue) > 0 && !w.draining {
		more = w.always
	}
	var parting <-chan time.Time
	if w.parting != nil {
		parting = w.parting.C
	}
	select {
	case <-w.s.ended:
		return nil, false
	case <-more:
	case <-w.s.wake:
	case <-parting:
		w.parted = true
	case <-w.tick.C:
		w.cursors()
	case <-w.ping.C:
		return w.beat()
	}
	return nil, true
}

// beat pings the client, or gives it up.
func (w *writer) beat() (v *verdict, ok bool) {
	if w.s.socket.heard.Swap(false) || !w.s.reading.Load() {
		w.pings = 0
	}
	if w.pings >= maxUnheardPings {
		return &verdict{reply.CloseSilent, "no byte for two pings"}, true
	}
	w.pings++
	w.ping.Reset(w.s.m.cfg.Ping)
	return nil, w.s.socket.writeControl(opPing, nil) == nil
}

// collect takes what others have left for the writer.
func (w *writer) collect() (pong []byte, v *verdict, drain bool) {
	s := w.s
	s.mu.Lock()
	out := s.out
	s.out = w.spare[:0]
	pong, s.pong = s.pong, nil
	w.queue = append(w.queue, s.ready...)
	s.ready = s.ready[:0]
	gone := s.gone
	s.gone = nil
	v, drain = s.verdict, s.draining
	s.relief.Signal()
	s.mu.Unlock()
	if len(out) > 0 {
		w.line(out)
	}
	if w.spare = out; cap(out) > keepBytes {
		w.spare = nil
	}
	for _, x := range gone {
		w.queue = slices.DeleteFunc(w.queue, func(q *subscription) bool { return q == x })
		w.dirty = slices.DeleteFunc(w.dirty, func(q *subscription) bool { return q == x })
		s.close(x)
	}
	return pong, v, drain
}

// line adds a line, or several, to the frame.
func (w *writer) line(line []byte) {
	if len(w.frame) > headBytes {
		w.frame = append(w.frame, '\n')
	}
	w.frame = append(w.frame, line...)
}

// pull fills the frame with messages; subscriptions take turns.
func (w *writer) pull(ctx context.Context) {
	for len(w.queue) > 0 && len(w.frame) < frameBytes {
		x := w.queue[0]
		w.queue = slices.Delete(w.queue, 0, 1)
		w.serve(ctx, x)
		if ctx.Err() != nil {
			return
		}
	}
}

// serve gives one subscription its turn.
func (w *writer) serve(ctx context.Context, x *subscription) {
	s := w.s
	s.mu.Lock()
	x.queued = false // from here on a notification queues it again
	credit := x.credit
	s.mu.Unlock()
	sent, more := w.take(ctx, x, credit)
	if x.sub.Moved() && !x.dirty {
		x.dirty = true
		w.dirty = append(w.dirty, x)
		if !w.due {
			w.due = true
			w.tick.Reset(cursorEvery)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.credit != unbounded {
		x.credit -= int64(sent)
	}
	if more && x.credit != 0 && !x.queued && !x.gone {
		x.queued = true
		w.queue = append(w.queue, x)
	}
}

// take writes a subscription's turn into the frame. more: there may be more to
// read already.
func (w *writer) take(ctx context.Context, x *subscription, credit int64) (sent int, more bool) {
	bytes, count := 0, 0
	defer func() { w.messages(x, count) }()
	for bytes < turnBytes {
		most := turnMessages
		if credit != unbounded {
			if most = int(min(credit-int64(sent), turnMessages)); most <= 0 {
				return sent, true
			}
		}
		switch ev := x.sub.Next(ctx, deliver.Limit{Messages: most, Bytes: turnBytes - bytes}); ev.Kind {
		case deliver.Idle:
			return sent, false
		case deliver.Busy:
			return sent, true
		case deliver.Messages:
			w.turn = append(w.turn, ev.Run)
			count += ev.Run.Len()
			sent += ev.Run.Len()
			bytes += len(ev.Run.Lines())
		case deliver.Lost:
			w.messages(x, count)
			count = 0
			w.line(gapLine(x.name, ev.Gap))
		case deliver.Stuck:
			w.messages(x, count)
			count = 0
			w.line(reply.FrameFor(0, x.name, ev.Err))
		case deliver.Ended:
			w.messages(x, count)
			count = 0
			w.line(reply.FrameFor(0, x.name, ev.Err))
			w.s.mu.Lock()
			if !x.gone {
				w.s.dropLocked(x)
			}
			w.s.mu.Unlock()
			w.s.signal()
			return sent, false
		}
	}
	return sent, true
}

// messages adds the turn's runs to the frame.
func (w *writer) messages(x *subscription, count int) {
	if count == 0 {
		return
	}
	head := wire.Open(w.head[:0], "messages").Str("sub", x.name).Int("count", int64(count)).Close()
	w.line(head)
	w.head = head
	for _, r := range w.turn {
		w.frame = append(w.frame, r.Lines()...)
	}
	w.runs = append(w.runs, w.turn...)
	clear(w.turn)
	w.turn = w.turn[:0]
}

// flush writes the frame, if there is anything in it; false when the connection
// is lost.
func (w *writer) flush() bool {
	var err error
	if len(w.frame) > headBytes {
		err = w.s.socket.writeText(w.frame)
	}
	for _, r := range w.runs {
		if err == nil {
			w.s.m.cfg.Deliveries.Wrote(deliver.WebSocket, r)
			w.s.conn.Out.Add(int64(r.Len()))
		}
	}
	clear(w.runs)
	w.runs = w.runs[:0]
	if w.frame = w.frame[:headBytes]; cap(w.frame) > 2*frameBytes {
		w.frame = make([]byte, headBytes, 512) // one large message is no reason to keep the room
	}
	return err == nil
}

// cursors tells where the subscriptions stand that have moved.
func (w *writer) cursors() {
	w.due = false
	for i, x := range w.dirty {
		w.cursor(x)
		w.dirty[i] = nil
	}
	w.dirty = w.dirty[:0]
}

func (w *writer) cursor(x *subscription) {
	x.dirty = false
	w.line(wire.Open(nil, "cursor").Str("sub", x.name).Str("cursor", x.sub.Cursor()).Close())
}

// goodbye tells the client where it stands and when to come back. Nothing is
// delivered from then on, so the cursors hold.
func (w *writer) goodbye() {
	w.draining = true
	w.parting = time.NewTimer(partingTime)
	w.cursors()
	after := rand.N(w.s.m.cfg.DrainWindow).Round(time.Millisecond)
	w.line(reply.Closing("draining", after.String()))
}

// settled reports whether every publish is answered and every answer written.
func (w *writer) settled() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.inFlight == 0 && len(w.s.out) == 0
}

// finish closes the connection by the book: what is in the outbox, where the
// subscriptions stand, then the closing handshake.
func (w *writer) finish(v verdict) int {
	w.cursors()
	if !w.flush() {
		return w.lost()
	}
	if v.code >= 4000 {
		w.s.log.Info("closing a connection", "code", v.code, "reason", v.reason)
	}
	var handshake sync.WaitGroup
	done := make(chan struct{})
	handshake.Go(func() {
		_ = w.s.ws.Close(websocket.StatusCode(v.code), v.reason)
		close(done)
	})
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-done:
	case <-w.s.ended: // the client has answered, or gone
		_ = w.s.socket.Close()
	case <-patience.C:
		_ = w.s.socket.Close()
	}
	handshake.Wait()
	return v.code
}

// lost ends a connection that cannot be written to.
func (w *writer) lost() int {
	if !w.s.socket.stuck.Load() {
		return 0
	}
	w.s.m.cfg.Deliveries.Slow.Inc()
	w.s.log.Info("closed a slow consumer", "transport", deliver.WebSocket, "code", reply.CloseSlowConsumer)
	return reply.CloseSlowConsumer
}

// stop ends the writer's clocks.
func (w *writer) stop() {
	w.ping.Stop()
	w.tick.Stop()
	if w.parting != nil {
		w.parting.Stop()
	}
}
