package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestClientsThatDoNotReadHoldBoundedMemory asks for gigabytes and takes none
// of it, in every way a client can, and sends what never comes to its end.
func TestClientsThatDoNotReadHoldBoundedMemory(t *testing.T) {
	t.Parallel()
	node := harness.Start(t, harness.Options{})
	api := client.New(node.URL)
	api.CreateTopic(t, "p", `"max_message_bytes":16777216`)
	for range 20 {
		api.Must(t, 201, "POST", "/topics/p", jsonType, `"`+strings.Repeat("y", 1_000_000)+`"`)
	}
	before := node.RSS()
	const path = "/topics/p?max_bytes=16777216&limit=10000"

	var conns []net.Conn
	var sending sync.WaitGroup
	for range 2 { // HTTP/2 with a shut window
		conn := rawDial(t, node.Addr)
		conns = append(conns, conn)
		frames := http2.NewFramer(conn, io.LimitReader(conn, 0))
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(100) {
			var head bytes.Buffer
			enc := hpack.NewEncoder(&head)
			for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}} {
				_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			if err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 60 { // HTTP/1.1
		conn := rawDial(t, node.Addr)
		conns = append(conns, conn)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	}
	polls := len(conns)
	body := bytes.Repeat([]byte{'x'}, 16<<20-1)
	for range 40 { // bodies
		conn := rawDial(t, node.Addr)
		conns = append(conns, conn)
		fmt.Fprintf(conn, "POST /topics/p HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", len(body)+1)
		sending.Go(func() { _, _ = conn.Write(body) })
	}

	// Meanwhile those who need little are served.
	var slowest time.Duration
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		began := time.Now()
		api.Must(t, 201, "POST", "/topics/p", jsonType, `"small"`)
		api.Must(t, 200, "GET", "/topics/", "", "")
		slowest = max(slowest, time.Since(began))
	}
	grown := node.PeakRSS() - before
	t.Logf("%d connections that take nothing: memory grew by %d MiB, the slowest pair of small calls took %s", len(conns), grown>>20, slowest.Round(time.Millisecond))
	if grown > 450<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	// The polls are left by themselves, and then there is room for all.
	for _, conn := range conns[polls:] {
		_ = conn.Close()
	}
	for end := time.Now().Add(30 * time.Second); node.Metric("gateway_http_held_bytes") > 1<<20; {
		if time.Now().After(end) {
			t.Fatalf("%.0f bytes are held", node.Metric("gateway_http_held_bytes"))
		}
		api.Must(t, 200, "GET", "/healthz", "", "")
	}
	if ans := api.Must(t, 200, "GET", path, "", ""); len(ans.Body) < 15_000_000 {
		t.Errorf("a poll gives %d bytes", len(ans.Body))
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	sending.Wait()
}
