package stream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tidewire/gateway/turn"
)

// hold serves a stream on the goroutine of its request, by the server's writer.
func (st *stream) hold(ctx context.Context, out *writer) error {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		to, last, err := st.say(ctx, out)
		if err != nil || last {
			return err
		}
		if to != turn.Rest && ctx.Err() == nil {
			continue
		}
		alarm.Reset(time.Until(st.due()))
		select {
		case <-st.wake:
		case <-alarm.C:
		case <-st.set.cut:
			return http.ErrServerClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say writes what there is to say, from a desk that it borrows.
func (st *stream) say(ctx context.Context, out *writer) (to turn.Outcome, last bool, err error) {
	d := st.set.borrowed.Get().(*desk)
	defer st.set.borrowed.Put(d)
	if to, last = st.compose(ctx, d, time.Now(), true); d.empty() {
		return to, last, nil
	}
	if err = out.write(d.plain()); err == nil {
		st.wrote(d.tally, d.runs, time.Now())
		d.tally.Tell()
	}
	return to, last, err
}

// writePiece is what one deadline covers: a client that takes as little as this
// in time is slow, but not stuck.
const writePiece = 16 << 10

// writer writes by the server: the beginning of every stream, and the whole of
// those whose connection cannot be taken.
type writer struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	slow time.Duration
	cut  <-chan struct{} // closed: no time left

	tooSlow bool // a write found the client taking nothing
}

// write writes all of b.
func (o *writer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writePiece)
		if err := o.piece(b[:n], n == len(b)); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (o *writer) piece(b []byte, last bool) error {
	select {
	case <-o.cut:
		return http.ErrServerClosed
	default:
	}
	began := time.Now()
	err := o.rc.SetWriteDeadline(began.Add(o.slow))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err = o.w.Write(b); err == nil && last {
		err = o.rc.Flush()
	}
	if err != nil {
		o.tooSlow = time.Since(began) >= o.slow
		return err
	}
	// Over HTTP/2 a deadline that passes ends the stream, idle or not.
	if err = o.rc.SetWriteDeadline(time.Time{}); errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
