package stream

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/turn"
	"tidewire/internal/wire"
)

// Serve answers a request with a stream from start on, which lasts until the
// client goes away, is too slow, the topic is deleted or the server ends it. Over
// HTTP/1.1 it returns once the stream has begun. An error means that nothing was
// written yet.
func (s *Set) Serve(w http.ResponseWriter, r *http.Request, start deliver.Start) error {
	if !s.enter() {
		return s.leaving().Refusal()
	}
	release, err := s.cfg.Seats.Take(r)
	if err != nil {
		s.open.Done()
		return err
	}
	out := &writer{w: w, rc: http.NewResponseController(w), slow: s.cfg.SlowConsumerTimeout, cut: s.cut}
	st := &stream{set: s, address: r.RemoteAddr, release: release, single: len(start.Places) == 1}
	taken, err := false, st.begin(out, r, start.Gap, start.Cursor())
	if err == nil {
		taken, err = st.take(w, r)
	}
	if err != nil {
		st.debug(start.Topic.Name, err)
		release()
		s.open.Done()
		return nil
	}
	if !taken {
		st.wake = make(chan struct{}, 1)
	}
	st.join(r, start)
	if taken {
		s.open.Go(st.Run) // the server's goroutine goes, with all it holds
		st.line.slot.GiveBack(turn.More)
		s.open.Done()
		return nil
	}
	defer s.open.Done()
	defer st.leave()
	switch err := st.hold(r.Context(), out); {
	case out.tooSlow:
		st.tooSlow("it took nothing")
	case err != nil && r.Context().Err() == nil:
		st.debug(start.Topic.Name, err)
	}
	return nil
}

// begin answers the request, and gives the client a place to resume from before
// there is any message.
func (st *stream) begin(out *writer, r *http.Request, gap *deliver.Gap, cursor string) error {
	h := out.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // it ends with the stream
	}
	out.w.WriteHeader(http.StatusOK)
	now := time.Now()
	st.idAt, st.commentAt = now, now.Add(commentEvery)
	d := st.set.borrowed.Get().(*desk)
	defer st.set.borrowed.Put(d)
	d.reset()
	d.retry(retry())
	if gap != nil {
		d.event("gap", gap.Cursor, gap.AppendTo(wire.Begin(nil)).Close())
	} else {
		d.position(cursor)
	}
	return out.write(d.plain())
}

// join makes the stream a reader of its topic and one of the node's connections,
// until leave. It ends with the grant of its request.
func (st *stream) join(r *http.Request, start deliver.Start) {
	g := access.Of(r.Context())
	if g == nil {
		g = access.Everyone() // whoever serves without asking has no grants to hand on
	}
	st.sub = st.set.cfg.Hub.Subscribe(start, st.poke)
	st.conn = st.set.cfg.Connections.Add(st, uuid.NewString(), deliver.SSE, st.address, g.Principal, g.Expires)
	st.set.cfg.Deliveries.Connections.WithLabelValues(deliver.SSE).Inc()
	st.set.add(st)
}

func (st *stream) leave() {
	st.set.remove(st)
	st.conn.Leave()
	st.sub.Close()
	st.set.cfg.Deliveries.Connections.WithLabelValues(deliver.SSE).Dec()
	st.release()
}

func (st *stream) debug(topic string, err error) {
	st.set.cfg.Logger.Debug("an event stream ended", "address", st.address, "topic", topic, "err", err)
}
