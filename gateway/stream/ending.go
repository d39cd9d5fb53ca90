package stream

import (
	"time"

	"tidewire/internal/wire"
)

// goodbye is why a stream ends while its client is still there, and when that
// may come back.
type goodbye struct {
	reason string
	after  time.Duration
}

// Expire is for the set of connections.
func (st *stream) Expire() { st.end(goodbye{reason: "token expired"}) }

// Dismiss is for the set of connections.
func (st *stream) Dismiss() { st.end(goodbye{reason: "closed by an administrator"}) }

// Reading is for the set of connections.
func (st *stream) Reading() (subscriptions int, behind int64) { return 1, st.sub.Behind() }

// drain sends the client away for a while, each for another.
func (st *stream) drain() {
	st.end(goodbye{reason: "draining", after: st.set.leaving().Return(time.Now())})
}

// end has the stream say goodbye. The first reason counts.
func (st *stream) end(g goodbye) {
	if st.ended.CompareAndSwap(nil, &g) {
		st.poke()
	}
}

// part says goodbye.
func (st *stream) part(d *desk, g *goodbye) {
	cur := st.sub.Cursor()
	if g.after > 0 {
		d.retry(g.after)
	}
	d.event("closing", cur, wire.Begin(nil).Str("reason", g.reason).Str("retry_after", g.after.String()).Str("cursor", cur).Close())
}
