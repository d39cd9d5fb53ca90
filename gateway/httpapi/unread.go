package httpapi

import (
	"io"
	"net/http"
	"time"
)

const (
	// unreadSpare is what net/http itself takes of a body that nobody read.
	unreadSpare = 256 << 10
	// unreadBytes and unreadTime bound what is taken of it after a refusal.
	unreadBytes = 32 << 20
	unreadTime  = 3 * time.Second
)

// refuseAhead sends a refusal while its body is still on the way, and takes
// the rest of the body. Without that the connection would end under a client
// that sends all it has before it looks: most of them then report a broken pipe
// and never see why. A body that could not be read is left alone; a client that waits for "100 Continue" sends nothing
// more, and HTTP/2 ends the one stream by itself.
func refuseAhead(w *response, r *http.Request, send func()) {
	small := r.ContentLength >= 0 && r.ContentLength <= unreadSpare
	if w.lasting || small || w.unread.Load() || r.Header.Get("Expect") != "" || w.control.EnableFullDuplex() != nil {
		send()
		return
	}
	w.Header().Set("Connection", "close")
	send()
	if w.FlushError() != nil || w.control.SetReadDeadline(time.Now().Add(unreadTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, unreadBytes)) // whatever comes of it, the answer is out
}
