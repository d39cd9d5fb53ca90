package session_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tidewire/internal/testkit/metric"
)

// TestACloseComesBetweenFrames has clients that read nothing say goodbye while
// the node is in the midst of a frame to them. What they read then are whole
// frames, the close after them, and nothing after that.
func TestACloseComesBetweenFrames(t *testing.T) {
	n := newNode(t)
	topic := n.Topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	value := `"` + strings.Repeat("y", 9000) + `"`
	closed := 0
	for range 6 {
		conn, err := smallWindow.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		subscribe := `{"op":"subscribe","id":1,"topic":"orders"}`
		fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n%s%s", []byte{0x81, 0x80 | byte(len(subscribe)), 0, 0, 0, 0}, subscribe)
		b, got := make([]byte, 1), ""
		for !strings.HasSuffix(got, `"recovered":true}`) && !strings.HasSuffix(got, `"recovered":false}`) {
			if _, err := conn.Read(b); err != nil {
				t.Fatal(err)
			}
			got += string(b)
		}
		waited := metric.Sum(t, n.reg, "gateway_websocket_waiting_writes_total")
		for range 100 { // more than the kernel takes
			n.Append(topic.Ref(0), "", value)
		}
		for late := time.After(20 * time.Second); metric.Sum(t, n.reg, "gateway_websocket_waiting_writes_total") == waited; {
			select {
			case <-time.After(time.Millisecond):
			case <-late:
				t.Fatal("the node is not in the midst of a frame: nothing is tested")
			}
		}
		if _, err := conn.Write([]byte{0x88, 0x82, 0, 0, 0, 0, 3, 0xE8}); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if strictly(t, conn) {
			closed++
		}
		_ = conn.Close()
	}
	if closed == 0 {
		t.Error("no client was told goodbye")
	}
}

// strictly reads frames to the end of the connection; true: the last one is a
// close. A connection that is cut may end anywhere.
func strictly(t *testing.T, r io.Reader) (closed bool) {
	t.Helper()
	var head [10]byte
	for {
		if _, err := io.ReadFull(r, head[:2]); err != nil {
			return closed
		}
		if closed {
			t.Fatalf("frame %x follows the close", head[:2])
		}
		length := uint64(head[1])
		switch length {
		case 126:
			_, _ = io.ReadFull(r, head[2:4])
			length = uint64(binary.BigEndian.Uint16(head[2:4]))
		case 127:
			_, _ = io.ReadFull(r, head[2:10])
			length = binary.BigEndian.Uint64(head[2:10])
		}
		payload := make([]byte, length)
		_, err := io.ReadFull(r, payload)
		if i := strings.IndexByte(string(payload), 0x88); head[0] == 0x81 && i >= 0 {
			t.Fatalf("a close in the midst of a text frame: %q", payload[max(0, i-8):min(len(payload), i+8)])
		}
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return false
		case head[0] == 0x88:
			closed = true
		case head[0] != 0x81 && head[0] != 0x89:
			t.Fatalf("%x is no frame of this server", head[:2])
		}
	}
}
