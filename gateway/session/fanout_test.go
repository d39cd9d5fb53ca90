package session_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tidewire/internal/cluster"
)

// crowd is many subscribers on real sockets that read what comes and keep count,
// without allocating anything.
type crowd struct {
	n     *node
	topic *cluster.Topic
	size  int
	got   atomic.Int64 // messages, by all
	want  atomic.Int64 // of them
	full  chan struct{}
	done  sync.WaitGroup
}

func newCrowd(tb testing.TB, size int) *crowd {
	tb.Helper()
	n := newNode(tb)
	c := &crowd{n: n, topic: n.Topic("orders", 1), size: size, full: make(chan struct{}, 1)}
	srv := httptest.NewServer(n.manager)
	tb.Cleanup(srv.Close)
	ready := make(chan error, size)
	var conns []net.Conn
	tb.Cleanup(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		c.done.Wait()
	})
	for range size {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			tb.Fatal(err)
		}
		conns = append(conns, conn)
		c.done.Go(func() { c.read(conn, ready) })
	}
	for range size {
		if err := <-ready; err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// read subscribes, and counts what comes from then on.
func (c *crowd) read(conn net.Conn, ready chan<- error) {
	subscribe := `{"op":"subscribe","id":1,"topic":"orders"}`
	frame := append([]byte{0x81, 0x80 | byte(len(subscribe)), 0, 0, 0, 0}, subscribe...)
	_, err := fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n%s",
		"AAAAAAAAAAAAAAAAAAAAAA==", frame)
	b, got := make([]byte, 64<<10), ""
	for err == nil && !strings.Contains(got, `"op":"subscribed"`) {
		var n int
		n, err = conn.Read(b)
		got += string(b[:n])
	}
	if err == nil && !strings.Contains(got, fmt.Sprint(http.StatusSwitchingProtocols)) {
		err = fmt.Errorf("no upgrade: %s", got)
	}
	ready <- err
	for err == nil {
		var n int
		n, err = conn.Read(b)
		if k := int64(bytes.Count(b[:n], end)); k > 0 && c.got.Add(k) == c.want.Load() {
			c.full <- struct{}{}
		}
	}
}

// deliver sends a record to all and waits until they have it.
func (c *crowd) deliver() {
	c.want.Add(int64(c.size))
	c.n.AppendValue(c.topic.Ref(0), "key", value256)
	<-c.full
}

// A record of 256 bytes ends with what nothing else holds.
var (
	end      = []byte("v~")
	value256 = `"` + strings.Repeat("v", 253) + `~"`
)

// TestADeliveryAllocatesNothing holds that what a message costs in memory does
// not grow with its readers.
func TestADeliveryAllocatesNothing(t *testing.T) {
	const subscribers = 400
	c := newCrowd(t, subscribers)
	per := testing.AllocsPerRun(100, c.deliver) / subscribers
	t.Logf("%.3f allocations a delivery", per)
	if per > 0.5 { // the message itself costs some, and a cursor a second
		t.Errorf("%.3f allocations a delivery", per)
	}
}

// BenchmarkFanOut is the cost of a delivery, with the kernel's and the client's
// share; allocations count those of the message too, shared by all.
func BenchmarkFanOut(b *testing.B) {
	for _, subscribers := range []int{1, 1000} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			c := newCrowd(b, subscribers)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				c.deliver()
			}
			runtime.ReadMemStats(&after)
			deliveries := float64(b.N * subscribers)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/deliveries, "ns/delivery")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/deliveries, "allocs/delivery")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/deliveries, "B/delivery")
		})
	}
}
