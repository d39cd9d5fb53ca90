package stream

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/internal/wire"
)

// Why a stream ends before its client leaves or the node drains, as its closing
// event says it.
const (
	endedExpired   = "token expired"
	endedDismissed = "closed by an administrator"
)

// join makes a stream one of the node's connections until leave is called. It
// ends with the grant of its request.
func (st *stream) join(r *http.Request, wake func()) *connection.Connection {
	st.poke = wake
	g := access.Of(r.Context())
	if g == nil {
		g = access.Everyone() // whoever serves without asking has no grants to hand on
	}
	return st.streams.connections.Add(st, uuid.NewString(), deliver.SSE, r.RemoteAddr, g.Principal, g.Expires)
}

// Reading is for the set of connections.
func (st *stream) Reading() (subscriptions int, behind int64) { return 1, st.sub.Behind() }

// Expire is for the set of connections.
func (st *stream) Expire() { st.end(endedExpired) }

// Dismiss is for the set of connections.
func (st *stream) Dismiss() { st.end(endedDismissed) }

// end lets the stream's own goroutine say goodbye. The first reason counts.
func (st *stream) end(reason string) {
	if st.ended.CompareAndSwap(nil, &reason) {
		st.poke()
	}
}

// parting says goodbye for a reason other than a drain: the client may come back
// at once.
func (st *stream) parting(reason string) error {
	cur := st.sub.Cursor()
	st.out.event("closing", cur, wire.Begin(nil).Str("reason", reason).Str("retry_after", time.Duration(0).String()).Str("cursor", cur).Close())
	return st.out.flush()
}
