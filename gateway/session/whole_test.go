package session_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// masked is a client's frame; head is its first byte.
func masked(head byte, payload string) []byte {
	b := []byte{head}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	key := [4]byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// dialRaw opens a WebSocket over a real socket, and gives the socket too.
func dialRaw(t *testing.T, ctx context.Context, n *node) (*websocket.Conn, net.Conn) {
	srv := httptest.NewServer(n.manager)
	t.Cleanup(srv.Close)
	var conn net.Conn
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return conn, err
	}}
	ws, _, err := websocket.Dial(ctx, srv.URL+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, conn
}

// Frames of all sizes, whole and in fragments, with pings between, arrive as they were
// sent, however the stream is cut.
func TestFramesArriveHoweverTheStreamIsCut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n := newNode(t)
	n.Topic("orders", 1)
	ws, conn := dialRaw(t, ctx, n)
	stream := masked(0x81, `{"op":"subscribe","topic":"orders"}`)
	var values []string
	for id := range 400 {
		size := rand.IntN(200)
		switch id % 10 {
		case 0:
			size = 65_400 + rand.IntN(300) // about as much as is read at once, and as a head of four bytes can say
		case 1:
			size = rand.IntN(5000)
		}
		v := strings.Repeat(fmt.Sprintf("%d-", id), size/2+1)[:size]
		values = append(values, v)
		line := fmt.Sprintf(`{"op":"publish","id":%d,"topic":"orders","value":%q}`, id+1, v)
		switch id % 7 {
		case 0:
			stream = append(stream, masked(0x89, "ping")...)
		case 1:
			at := rand.IntN(len(line))
			stream = append(append(append(stream, masked(0x01, line[:at])...), masked(0x8A, "")...), masked(0x80, line[at:])...)
			continue
		}
		stream = append(stream, masked(0x81, line)...)
	}
	sent := make(chan error, 1)
	go func() {
		for len(stream) > 0 {
			k := min(len(stream), 1+rand.IntN(40_000))
			if rand.IntN(3) == 0 {
				k = min(len(stream), 1+rand.IntN(20))
			}
			if _, err := conn.Write(stream[:k]); err != nil {
				sent <- err
				return
			}
			stream = stream[k:]
		}
		sent <- nil
	}()
	for got := 0; got < len(values); {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, len(values), err)
		}
		lines := bufio.NewScanner(strings.NewReader(string(b)))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var m struct{ Op, Value string }
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Op == "error" {
				t.Fatalf("%v: %s", err, lines.Bytes())
			}
			if m.Op == "" {
				if m.Value != values[got] {
					t.Fatalf("message %d is %.80q, want %.80q", got, m.Value, values[got])
				}
				got++
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// What closes a connection does so however its frame is taken in.
func TestWholeFramesThatClose(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		code  websocket.StatusCode
	}{
		"not UTF-8":             {masked(0x81, "{\"op\":\"hello\",\"client\":\"\xff\"}"), 4502},
		"binary":                {masked(0x82, `{"op":"hello"}`), 4502},
		"too big":               {masked(0x81, `{"op":"hello","client":"`+strings.Repeat("x", 100_000)+`"}`), 1009},
		"twenty frames of none": {[]byte(strings.Repeat(string(masked(0x81, "")), 20)), 4502},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		n := newNode(t)
		ws, conn := dialRaw(t, ctx, n)
		if _, err := conn.Write(append(c.frame, masked(0x81, `{"op":"hello"}`)...)); err != nil {
			t.Fatal(name, err)
		}
		var err error
		for err == nil {
			_, _, err = ws.Read(ctx)
		}
		if code := websocket.CloseStatus(err); code != c.code {
			t.Errorf("%s: %v, want %d", name, err, c.code)
		}
		cancel()
	}
}

// The library reads a little ahead: what it has got comes before a frame that lies whole
// behind it.
func TestAWholeFrameDoesNotOvertake(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ws, conn := dialRaw(t, ctx, newNode(t))
	line := `{"op":"hello","id":1,"client":"` + strings.Repeat("x", 100) + `"}`
	last := len(line) - 2
	stream := append(masked(0x01, line[:last]), masked(0x80, line[last:])...)
	stream = append(stream, masked(0x81, "{}")...) // 16 bytes with the fragment before: the library takes both at once
	if _, err := conn.Write(append(stream, masked(0x81, `{"op":"hello","id":2}`)...)); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for len(ops) < 4 {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.SplitSeq(string(b), "\n") {
			var m struct {
				Op string
				ID int
			}
			if err := json.Unmarshal([]byte(l), &m); err != nil {
				t.Fatalf("%v: %s", err, l)
			}
			ops = append(ops, fmt.Sprintf("%s %d", m.Op, m.ID))
		}
	}
	if got, want := strings.Join(ops, ", "), "welcome 0, welcome 1, error 0, welcome 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
