package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// rawDial opens a TCP connection whose receive buffer is as small as the kernel allows.
func rawDial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := tryDial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // most are closed by then
	return c
}

func tryDial(addr string) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		controlErr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return errors.Join(controlErr, err)
	}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

const upgrade = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"

// textFrame is a client's text frame, masked with zeros.
func textFrame(text string) string {
	n := len(text)
	head := []byte{0x81, 0x80 | 126, byte(n >> 8), byte(n), 0, 0, 0, 0}
	if n < 126 {
		head = []byte{0x81, 0x80 | byte(n), 0, 0, 0, 0}
	}
	return string(head) + text
}

// stillServes checks that the node still does its work, and quickly.
func stillServes(t testing.TB, n *harness.Node, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	api := client.New(n.URL)
	defer api.HTTP.CloseIdleConnections()
	for _, path := range []string{"/readyz", "/topics/" + topic + "/metadata"} {
		if ans, err := api.Do(ctx, http.MethodGet, path, "", ""); err != nil || ans.Status != 200 {
			t.Fatalf("%s during the attack: %d %v", path, ans.Status, err)
		}
	}
	if ans, err := api.Do(ctx, http.MethodPost, "/topics/"+topic, "text/plain", "alive"); err != nil || ans.Status != 201 {
		t.Fatalf("publish during the attack: %d %s %v", ans.Status, ans.Body, err)
	}
}

// endsBy waits until the server has ended a connection whose client takes
// nothing, and says how.
func endsBy(c net.Conn, bound time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(bound))
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("still open")
	}
	return nil // closed or reset
}

// TestSlowClientsHarmNobodyElse has clients of both kinds that never read while
// others do.
func TestSlowClientsHarmNobodyElse(t *testing.T) {
	t.Parallel()
	const slowEach, readers, records, size = 20, 3, 4000, 4 << 10
	n := harness.Start(t, harness.Options{Args: []string{"--slow-consumer-timeout", "1s", "--log-level", "warn"}})
	api := client.New(n.URL)
	api.CreateTopic(t, "firehose", `"partitions":2`)
	before := n.RSS()
	var slow []net.Conn
	for range slowEach {
		sse := rawDial(t, n.Addr)
		send(t, sse, "GET /topics/firehose/events?from=earliest HTTP/1.1\r\nHost: x\r\n\r\n")
		ws := rawDial(t, n.Addr)
		send(t, ws, upgrade)
		send(t, ws, textFrame(`{"op":"subscribe","id":1,"topic":"firehose","from":"earliest"}`))
		slow = append(slow, sse, ws)
	}
	harness.Await(t, 20*time.Second, "all slow clients are connected", func() bool {
		return n.Metric("gateway_connections") == 2*slowEach
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var late atomic.Int64
	var wg sync.WaitGroup
	for range readers {
		ws, err := client.DialWS(ctx, n.Addr, "")
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Drop()
		if f, err := ws.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"firehose","from":"earliest"}`); err != nil || f.Op != "subscribed" {
			t.Fatalf("%s %v", f.Raw, err)
		}
		wg.Go(func() {
			for got := 0; got < records; {
				f, err := ws.Next(ctx)
				if err != nil {
					t.Errorf("a reader that reads was cut off after %d messages: %v", got, err)
					return
				}
				if f.Op == "message" {
					got++
					at, err := time.Parse(time.RFC3339, f.Message.Timestamp)
					if err == nil {
						late.Store(max(late.Load(), int64(time.Since(at))))
					}
				}
			}
		})
	}
	value := strings.Repeat("f", size)
	var lines strings.Builder
	for i := range records {
		fmt.Fprintf(&lines, `{"value":"%s","partition":%d}`+"\n", value, i%2)
	}
	publishAll(t, n.URL, "firehose", lines.String(), records)
	wg.Wait()
	harness.Await(t, 20*time.Second, "the slow clients are found out", func() bool {
		return n.Metric("gateway_slow_consumers_total") == 2*slowEach
	})
	t.Logf("%d readers had all %d records, the slowest %s late; %d clients that read nothing were closed; resident %d MiB, before %d, at most %d",
		readers, records, time.Duration(late.Load()).Round(time.Millisecond), len(slow), n.RSS()>>20, before>>20, n.PeakRSS()>>20)
	for i, c := range slow {
		if err := endsBy(c, 10*time.Second); err != nil {
			t.Errorf("slow client %d: %v", i, err)
		}
	}
	if grown := n.PeakRSS() - before; grown > 256<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	stillServes(t, n, "firehose")
}

// TestConnectionsAreBounded opens more than the node takes.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const most, flood = 40, 120
	n := harness.Start(t, harness.Options{Args: []string{"--max-connections", strconv.Itoa(most)}})
	client.New(n.URL).CreateTopic(t, "crowded", "")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var mu sync.Mutex
	var inside []func()
	refused := 0
	var wg sync.WaitGroup
	for i := range flood {
		wg.Go(func() {
			leave, err := func() (func(), error) {
				if i%2 == 0 {
					ws, err := client.DialWS(ctx, n.Addr, "")
					if err != nil {
						return nil, err
					}
					return ws.Drop, nil
				}
				sse, err := client.OpenSSE(ctx, n.URL+"/topics/crowded/events", "")
				if err != nil {
					return nil, err
				}
				return sse.Close, nil
			}()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				inside = append(inside, leave)
				return
			}
			refused++
			if !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), `"code":"limit"`) {
				t.Errorf("connection %d: not a clear refusal: %v", i, err)
			}
			var r *client.Refusal
			if errors.As(err, &r) && r.Header.Get("Retry-After") == "" {
				t.Errorf("connection %d: refused without Retry-After", i)
			}
		})
	}
	wg.Wait()
	if len(inside) != most || refused != flood-most {
		t.Errorf("%d connections let in and %d refused, the bound is %d", len(inside), refused, most)
	}
	stillServes(t, n, "crowded") // calls are not connections that stay
	for _, leave := range inside {
		leave()
	}
	harness.Await(t, 10*time.Second, "a place is free again", func() bool {
		ws, err := client.DialWS(ctx, n.Addr, "")
		if err == nil {
			ws.Drop()
		}
		return err == nil
	})
	if got := n.Metric("gateway_connections_refused_total"); got < float64(refused) {
		t.Errorf("gateway_connections_refused_total is %v after %d refusals", got, refused)
	}
	t.Logf("%d let in, %d refused with 503", len(inside), refused)
}

// wetEach has a client that was there before a flood write to each of the 64 partitions of
// the topic dry. Each has to open its segment, while there is no file left for a client.
func wetEach(t *testing.T, n *harness.Node, api *client.API) {
	t.Helper()
	for p := range 64 {
		ans, err := api.Do(t.Context(), http.MethodPost, "/topics/dry?partition="+strconv.Itoa(p), "text/plain", "wet")
		if err != nil || ans.Status != 201 {
			t.Fatalf("partition %d during the flood: %d %s %v", p, ans.Status, ans.Body, err)
		}
	}
	harness.Await(t, patience, "every record is in a segment during the flood", func() bool {
		return len(harness.Files(t, filepath.Join(n.Dir(), "topics"), ".log")) == 64
	})
}

// TestAFloodOfConnectionsLeavesTheLogItsFiles opens plain connections that do
// nothing, more than the process may have files: the log goes on, and so do
// clients that come later.
func TestAFloodOfConnectionsLeavesTheLogItsFiles(t *testing.T) {
	t.Parallel()
	const files, flood = 400, 600
	n := harness.Start(t, harness.Options{OpenFiles: files, Args: []string{"--log-level", "warn"}})
	api := client.New(n.URL)
	api.CreateTopic(t, "dry", `"partitions":64`)
	held := make([]net.Conn, 0, flood)
	for range flood {
		c, err := tryDial(n.Addr) // the backlog takes what the process does not
		if err != nil {
			continue
		}
		held = append(held, c)
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\n") // whether it goes out is the server's affair
	}
	wetEach(t, n, api)
	all, _ := n.OpenFiles(n.Dir())
	for _, c := range held {
		_ = c.Close() // it may be refused already
	}
	harness.Await(t, 30*time.Second, "new clients are served", func() bool {
		fresh := client.New(n.URL)
		defer fresh.HTTP.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		ans, err := fresh.Do(ctx, http.MethodGet, "/readyz", "", "")
		return err == nil && ans.Status == 200
	})
	for p := range 64 {
		if got := len(client.New(n.URL).ReadAll(t, "dry", p)); got != 1 {
			t.Errorf("partition %d has %d records", p, got)
		}
	}
	stillServes(t, n, "dry")
	t.Logf("%d connections held against %d open files allowed (%d open at the height); the log kept all", len(held), files, all)
}

// TestSlowAndHugeHeadersAreCutOff: neither a client that never finishes its
// request nor one with an endless one costs more than a connection, and not for
// ever.
func TestSlowAndHugeHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{Args: []string{"--log-level", "warn"}})
	client.New(n.URL).CreateTopic(t, "calm", "")
	var slow []net.Conn
	for range 200 {
		c := rawDial(t, n.Addr)
		send(t, c, "GET /topics/calm HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		slow = append(slow, c)
	}
	var halves []net.Conn // a body that never comes
	for range 50 {
		c := rawDial(t, n.Addr)
		send(t, c, "POST /topics/calm HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nhalf")
		halves = append(halves, c)
	}
	stillServes(t, n, "calm")

	huge := rawDial(t, n.Addr)
	send(t, huge, "GET /topics/calm HTTP/1.1\r\nHost: x\r\nX-Huge: ")
	go func() { // until the server has had enough
		for {
			if _, err := io.WriteString(huge, strings.Repeat("h", 4096)); err != nil {
				return
			}
		}
	}()
	_ = huge.SetReadDeadline(time.Now().Add(10 * time.Second))
	status, err := bufio.NewReader(huge).ReadString('\n')
	if !strings.Contains(status, "431") && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("an endless header was answered with %q, %v", status, err)
	}
	t.Logf("an endless header: %q %v", strings.TrimSpace(status), err)

	for i, c := range slow {
		// A byte now and then must not keep it open.
		_, _ = c.Write([]byte("x"))
		if err := endsBy(c, 15*time.Second); err != nil {
			t.Fatalf("slow header %d: %v", i, err)
		}
	}
	for _, c := range halves {
		_ = c.(*net.TCPConn).SetLinger(0) // vanishes
		_ = c.Close()
	}
	stillServes(t, n, "calm")
	page := client.New(n.URL).ReadAll(t, "calm", 0)
	for _, m := range page {
		if string(m.Bytes()) != "alive" {
			t.Errorf("half a body was kept: %q", m.Bytes())
		}
	}
	t.Logf("%d slow headers cut off, %d half bodies dropped, %d records kept", len(slow), len(halves), len(page))
}

// TestGarbageOnEveryPort writes noise to whatever listens.
func TestGarbageOnEveryPort(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{Args: []string{"--log-level", "warn"}})
	client.New(n.URL).CreateTopic(t, "noise", "")
	random := rand.New(rand.NewPCG(1, 26))
	noise := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	heads := [][]byte{nil, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), []byte(upgrade), {0x16, 3, 1, 2, 0, 1}, {0}, {1}, {2}, {3}, bytes.Repeat([]byte{0xff}, 64)}
	for name, addr := range n.Listeners {
		for i := range 60 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, _ = c.Write(append(heads[i%len(heads)], noise(1+random.IntN(8<<10))...)) // it may be refused midway
			switch i % 3 {
			case 0:
				_ = c.(*net.TCPConn).SetLinger(0)
			case 1:
				_ = c.(*net.TCPConn).CloseWrite()
			}
			defer c.Close()
		}
		if u, err := net.Dial("udp", addr); err == nil {
			for range 20 {
				_, _ = u.Write(noise(1 + random.IntN(1200))) // nobody may be there
			}
			_ = u.Close()
		}
		stillServes(t, n, "noise")
	}
	if strings.Contains(n.Log(), "panic") {
		t.Errorf("a panic:\n%s", n.Log())
	}
	if err := n.Stop(); err != nil {
		t.Errorf("stop after the noise: %v", err)
	}
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	stillServes(t, n, "noise")
	t.Logf("noise on %d listeners: %v", len(n.Listeners), n.Listeners)
}

// figures of a process, as it tells them itself.
type figures struct{ goroutines, files, rss float64 }

func figuresOf(n *harness.Node) figures {
	return figures{n.Metric("go_goroutines"), n.Metric("process_open_fds"), n.Metric("process_resident_memory_bytes")}
}

// TestConnectionsLeaveNothingBehind connects and leaves in every way, many
// times over.
func TestConnectionsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	cycles := 3000
	if harness.Soak() {
		cycles = 10_000
	}
	n := harness.Start(t, harness.Options{Args: []string{"--log-level", "error"}})
	api := client.New(n.URL)
	api.CreateTopic(t, "door", `"partitions":2`)
	stillServes(t, n, "door")
	cycle := func(ctx context.Context, i int) error {
		switch i % 5 {
		case 0, 1: // WebSocket with a subscription, closed in order or not
			ws, err := client.DialWS(ctx, n.Addr, "")
			if err != nil {
				return err
			}
			if _, err := ws.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"door","from":"earliest"}`); err != nil {
				ws.Drop()
				return err
			}
			if i%5 == 1 {
				ws.Drop()
				return nil
			}
			return ws.Close()
		case 2:
			sse, err := client.OpenSSE(ctx, n.URL+"/topics/door/events?from=earliest", "")
			if err != nil {
				return err
			}
			_, err = sse.Next()
			sse.Close()
			return err
		case 3: // vanishes in the middle of everything
			c, err := tryDial(n.Addr)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c, upgrade+textFrame(`{"op":"subscribe","id":1,"topic":"door"}`))
			_ = c.SetLinger(0)
			return errors.Join(err, c.Close())
		default: // a long poll that is left
			ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			own := client.New(n.URL)
			defer own.HTTP.CloseIdleConnections()
			_, err := own.Poll(ctx, "door", "partition", "0", "offset", "latest", "wait", "30s")
			if err == nil || ctx.Err() == nil {
				return fmt.Errorf("a long poll ended by itself: %v", err)
			}
			return nil
		}
	}
	run := func(count int) {
		t.Helper()
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 16 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				for i := int(next.Add(1)); i <= count; i = int(next.Add(1)) {
					if err := cycle(ctx, i); err != nil {
						t.Errorf("cycle %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	run(300) // pools and caches fill up
	quiet := func() bool {
		return n.Metric("gateway_connections") == 0 && n.Metric("gateway_websocket_subscriptions") == 0
	}
	harness.Await(t, 20*time.Second, "nobody is connected", quiet)
	api.HTTP.CloseIdleConnections()
	before := figuresOf(n)
	began := time.Now()
	run(cycles)
	took := time.Since(began)
	harness.Await(t, 20*time.Second, "nobody is connected", quiet)
	var after figures
	harness.Await(t, 30*time.Second, "goroutines and files are back", func() bool {
		after = figuresOf(n)
		return after.goroutines <= before.goroutines*1.1+2 && after.files <= before.files*1.1+2
	})
	if after.rss > before.rss*1.1+32<<20 {
		t.Errorf("memory grew from %.0f to %.0f MiB", before.rss/(1<<20), after.rss/(1<<20))
	}
	t.Logf("%d cycles in %s: goroutines %.0f, before %.0f; files %.0f, before %.0f; resident %.0f MiB, before %.0f",
		cycles, took.Round(time.Millisecond), after.goroutines, before.goroutines, after.files, before.files, after.rss/(1<<20), before.rss/(1<<20))
	stillServes(t, n, "door")
	if log := n.Log(); log != "" {
		t.Errorf("clients that leave are no errors of the node:\n%s", log)
	}
}

// TestAPublisherThatReadsNoAnswersIsHeldBack floods one WebSocket and one body
// of ndjson without taking an answer: the node stops reading from them, others
// go on, and memory stays bounded.
func TestAPublisherThatReadsNoAnswersIsHeldBack(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{Args: []string{"--slow-consumer-timeout", "2s", "--log-level", "warn"}})
	client.New(n.URL).CreateTopic(t, "flooded", `"partitions":2,"retention":{"bytes":8388608}`)
	before := n.RSS()
	const most = 64 << 20 // far above every bound
	flood := func(c *net.TCPConn, piece string) (sent int64, err error) {
		_ = c.SetWriteDeadline(time.Now().Add(45 * time.Second))
		for sent < most {
			k, err := io.WriteString(c, piece)
			sent += int64(k)
			if err != nil {
				return sent, err
			}
		}
		return sent, nil
	}
	ws := rawDial(t, n.Addr)
	send(t, ws, upgrade)
	frame := textFrame(`{"op":"publish","id":1,"topic":"flooded","value":"` + strings.Repeat("w", 100) + `"}`)
	lines := rawDial(t, n.Addr)
	send(t, lines, "POST /topics/flooded HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000000\r\n\r\n")
	type end struct {
		what string
		sent int64
		err  error
	}
	ends := make(chan end, 2)
	go func() {
		sent, err := flood(ws, strings.Repeat(frame, 100))
		ends <- end{"WebSocket", sent, err}
	}()
	go func() {
		sent, err := flood(lines, strings.Repeat(`{"value":1}`+"\n", 1000))
		ends <- end{"ndjson", sent, err}
	}()
	for range 2 {
		stop := time.After(50 * time.Second)
		for waiting := true; waiting; {
			select {
			case e := <-ends:
				t.Logf("%s: %d bytes taken, then %v", e.what, e.sent, e.err)
				if e.err == nil {
					t.Errorf("%s: a publisher that reads no answer could send %d bytes", e.what, e.sent)
				}
				if errors.Is(e.err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: held back, but never closed", e.what)
				}
				waiting = false
			case <-time.After(200 * time.Millisecond):
				stillServes(t, n, "flooded")
			case <-stop:
				t.Fatal("the floods did not end")
			}
		}
	}
	if grown := n.PeakRSS() - before; grown > 300<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	t.Logf("resident at most %d MiB, before %d", n.PeakRSS()>>20, before>>20)
}

// TestHalfClosedConnections has clients that send no more and still read: a
// call under way is answered as it ends or not at all, and a stream ends.
func TestHalfClosedConnections(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{Args: []string{"--log-level", "warn"}})
	client.New(n.URL).CreateTopic(t, "half", "")
	kept, answered := 0, 0
	const calls = 200
	for i := range calls {
		c := rawDial(t, n.Addr)
		body := fmt.Sprintf("half-%d", i)
		send(t, c, fmt.Sprintf("POST /topics/half HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			continue // no answer: the client does not know
		}
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			continue
		}
		if res.StatusCode != 201 || !bytes.Contains(answer, []byte(`"offset":`)) {
			t.Fatalf("call %d was answered with %d %q", i, res.StatusCode, answer)
		}
		kept++
	}
	records := len(client.New(n.URL).ReadAll(t, "half", 0))
	if records < kept {
		t.Errorf("%d calls were told 201, %d records are there", kept, records)
	}
	for i := range calls {
		c := rawDial(t, n.Addr)
		path := []string{"/topics/half?offset=0", "/topics/half?offset=latest&wait=200ms", "/topics/", "/metrics"}[i%4]
		send(t, c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			continue
		}
		if answer, err := io.ReadAll(res.Body); err == nil && (res.StatusCode != 200 || len(answer) == 0) {
			t.Fatalf("%s was answered with %d %q", path, res.StatusCode, answer)
		}
		answered++
	}
	var streams []net.Conn
	for range 20 {
		sse := rawDial(t, n.Addr)
		send(t, sse, "GET /topics/half/events HTTP/1.1\r\nHost: x\r\n\r\n")
		ws := rawDial(t, n.Addr)
		send(t, ws, upgrade+textFrame(`{"op":"subscribe","id":1,"topic":"half"}`))
		streams = append(streams, sse, ws)
	}
	harness.Await(t, 20*time.Second, "the streams are open", func() bool { return n.Metric("gateway_connections") == 40 })
	for _, c := range streams {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	harness.Await(t, 20*time.Second, "half-closed streams end", func() bool { return n.Metric("gateway_connections") == 0 })
	stillServes(t, n, "half")
	t.Logf("%d half-closed calls: %d answered 201, %d records kept; %d of %d reads answered; %d half-closed streams ended", calls, kept, records, answered, calls, len(streams))
	if log := n.Log(); log != "" {
		t.Errorf("the log has\n%s", log)
	}
}
