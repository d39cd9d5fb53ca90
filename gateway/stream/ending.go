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

// endTime is how long a stream goes on at most that is over, because its client
// is slow to take what comes before the goodbye.
const endTime = 5 * time.Second

// Expire is for the set of connections.
func (st *stream) Expire() { st.over("token expired") }

// Dismiss is for the set of connections.
func (st *stream) Dismiss() { st.over("closed by an administrator") }

func (st *stream) over(reason string) {
	st.end(goodbye{reason: reason})
	if st.wake == nil {
		time.AfterFunc(endTime, st.cut)
	}
}

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
	again := g.after
	if again == 0 {
		again = retry() // whose stream ends is not to come back at once with all the others
	}
	d.retry(again)
	d.event("closing", cur, wire.Begin(nil).Str("reason", g.reason).Str("retry_after", g.after.String()).Str("cursor", cur).Close())
}
