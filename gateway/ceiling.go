package gateway

import (
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"tidewire/gateway/reply"
	"tidewire/internal/fault"
)

// ceiling bounds the connections of a node to those it has open files for. One
// more is told so and closed: without it accept would fail in a loop, and the
// log would have no file to open either.
type ceiling struct {
	net.Listener
	most    int64        // 0: no bound
	http    atomic.Int64 // connections that the HTTP server holds
	taken   func() int   // connections that it has handed over
	refused func()
	answer  []byte
}

func newCeiling(l net.Listener, most int, taken func() int, refused func()) *ceiling {
	err := fault.New(fault.Limit, "the node holds all the connections it has open files for; connect to another, or again later").With("limit", "open_files").Overload()
	body := reply.Problem(err)
	head := "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + reply.ProblemType + "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	return &ceiling{Listener: l, most: int64(most), taken: taken, refused: refused, answer: append([]byte(head), body...)}
}

// Accept gives the next connection that there is room for.
func (c *ceiling) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil || c.most == 0 || c.http.Load()+int64(c.taken()) < c.most {
			return conn, err
		}
		c.refused()
		// A new socket takes a few hundred bytes without waiting; a client that
		// misses them sees the connection end, which says enough.
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = conn.Write(c.answer)
		_ = conn.Close()
	}
}

// state follows the HTTP server's connections.
func (c *ceiling) state(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		c.http.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.http.Add(-1)
	}
}
