package session_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"tidewire/internal/testkit/metric"
)

// signs are so many empty pings (0x89) or pongs (0x8A) of a client.
func signs(op byte, n int) []byte { return bytes.Repeat([]byte{op, 0x80, 1, 2, 3, 4}, n) }

// Who pings and pongs a thousand times in less than a second is ended; who takes longer
// is not, however often.
func TestAFloodOfPingsAndPongsEndsItsConnection(t *testing.T) {
	for name, op := range map[string]byte{"pings": 0x89, "pongs": 0x8A} {
		bubble(t, func(t *testing.T) {
			n := newNode(t)
			n.Topic("orders", 1)
			c := n.open(t)
			for id := range 5 {
				if _, err := c.conn.Write(signs(op, 999)); err != nil {
					t.Fatal(name, err)
				}
				c.send(t, `{"op":"publish","id":`+string(rune('1'+id))+`,"topic":"orders","value":1}`)
				c.want(t, "published")
				<-time.After(time.Second)
			}
			_, _ = c.conn.Write(signs(op, 2000)) // it may be closed before all are written
			if code, reason := c.closed(t); code != 4503 || reason == "" {
				t.Fatal(name, code, reason)
			}
			c.vanish()
			synctest.Wait()
			if closes := metric.Sum(t, n.reg, "gateway_websocket_closes_total"); closes != 1 {
				t.Errorf("%s: %v closes are counted", name, closes)
			}
		})
	}
}

// Over a real socket pings that come first are taken in before the library sees them.
func TestAFloodEndsAConnectionOverARealSocket(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ws, conn := dialRaw(t, ctx, n)
	if _, err := conn.Write(signs(0x89, 3000)); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, _, err = ws.Read(ctx)
	}
	if code := websocket.CloseStatus(err); code != 4503 {
		t.Fatal(err)
	}
}
