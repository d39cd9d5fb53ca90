package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAConnectionTooManyIsToldSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	c := newCeiling(l, 2, func() int { return 1 }, func() { refused.Add(1) })
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	_ = s.Listener.Close()
	s.Listener, s.Config.ConnState = c, c.state
	s.Start()
	defer s.Close()

	get := func(client *http.Client) string {
		t.Helper()
		res, err := client.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status + " " + string(b)
	}
	first := &http.Client{Transport: &http.Transport{}}
	if got := get(first); got != "200 OK here" {
		t.Fatal(got)
	}
	// The first one stays open, and one is a WebSocket: there is no room left.
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 503 ") || !strings.Contains(string(b), `"code":"limit"`) || !strings.Contains(string(b), "Retry-After: 1\r\n") {
		t.Fatalf("%q, %v", b, err)
	}
	_ = conn.Close()
	if got := get(first); got != "200 OK here" {
		t.Fatal(got)
	}
	if n := refused.Load(); n != 1 {
		t.Fatalf("%d refused", n)
	}
}
