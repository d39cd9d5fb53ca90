package stream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/metric"
)

// What a pipe cannot show: a kernel that takes bytes for a client that does not
// read, resets, half-closed connections, and writes that end anywhere.

// tcp serves a site over the loopback.
func tcp(t *testing.T, partitions int, slow time.Duration) (*site, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveSite(t, l, nil, partitions, slow), l.Addr().String()
}

// reader is a client that writes and reads a connection itself.
type reader struct {
	*sseReader
	conn *net.TCPConn
	res  *http.Response
	raw  *bufio.Reader
}

// dial asks for a stream; a small window leaves little to the kernel.
func dial(t *testing.T, addr, request string, small bool) *reader {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		if !small {
			return nil
		}
		var err error
		return cmpErr(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10)
		}), &err)
	}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	raw := bufio.NewReader(conn)
	res, err := http.ReadResponse(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s", res.Status)
	}
	return &reader{newSSEReader(res.Body), conn.(*net.TCPConn), res, raw}
}

func cmpErr(err error, inner *error) error {
	if err != nil {
		return err
	}
	return *inner
}

func get(query string) string { return "GET /?" + query + " HTTP/1.1\r\nHost: node\r\n\r\n" }

// lines reads messages without much ado: for events that are long, and readers
// that are to be quick.
type lines struct{ *bufio.Reader }

func (r *reader) lines() lines { return lines{bufio.NewReaderSize(r.res.Body, 64<<10)} }

// message is the next one. The id counts once its event has come whole.
func (l lines) message() (m message, id string, err error) {
	data := ""
	for {
		line, err := l.ReadString('\n')
		switch {
		case err != nil:
			return m, "", err
		case line == "\n" && data != "":
			return m, id, json.Unmarshal([]byte(data), &m)
		case strings.HasPrefix(line, "id: "):
			id = strings.TrimSpace(line[4:])
		case strings.HasPrefix(line, `data: {"topic"`):
			data = line[6:]
		}
	}
}

func (s *site) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.After(20 * time.Second); !done(); {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-late:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func (s *site) empty() bool {
	return s.streams.Taken() == 0 && s.seats.Taken() == 0 && s.connected.Len() == 0
}

func TestASlowConsumerIsEndedAndResumesWithoutAGap(t *testing.T) {
	s, addr := tcp(t, 1, time.Second)
	slow, quick := dial(t, addr, get("from=earliest"), true), dial(t, addr, get("from=earliest"), false)
	const records = 400
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := quick.lines()
		for want := range ident.Offset(records) {
			if m, _, err := lines.message(); err != nil || m.Offset != want {
				t.Errorf("the quick one: %d, %v; want %d", m.Offset, err, want)
				return
			}
		}
	})
	key := strings.Repeat("k", 50_000)
	for range records { // 20 MB: more than any kernel takes
		s.m.Append(s.topic.Ref(0), key)
	}
	reading.Wait()
	s.await(t, "the slow one ends", func() bool { return metric.Sum(t, s.reg, "gateway_slow_consumers_total") == 1 })
	s.await(t, "and leaves", func() bool { return s.streams.Taken() == 1 })

	// It reads what the kernel still has, and comes back.
	cursor, next := "", ident.Offset(0)
	for lines := slow.lines(); ; {
		m, id, err := lines.message()
		if err != nil {
			if err == io.EOF {
				t.Error("a stream that was cut looks as if it had ended")
			}
			break
		}
		if m.Offset != next {
			t.Fatalf("offset %d, want %d", m.Offset, next)
		}
		cursor, next = id, next+1
	}
	if next == 0 || next == records {
		t.Fatalf("it has read %d before it was cut", next)
	}
	again := dial(t, addr, get("cursor="+cursor), false)
	for lines := again.lines(); next < records; next++ {
		if m, _, err := lines.message(); err != nil || m.Offset != next {
			t.Fatalf("it goes on at %d, %v; want %d", m.Offset, err, next)
		}
	}
}

func TestASocketThatBlocksInTheMidstOfAnEvent(t *testing.T) {
	s, addr := tcp(t, 2, time.Minute)
	r := dial(t, addr, get("from=earliest"), true)
	lengths := []int{1, 1_500_000, 10, 70_000, 1, 300_000, 2}
	for i, n := range lengths {
		s.m.Append(s.topic.Ref(ident.Index(i%2)), strings.Repeat(string(rune('a'+i)), n))
	}
	s.await(t, "a write waits", func() bool { return metric.Sum(t, s.reg, "gateway_sse_waiting_writes_total") > 0 })
	seen, lines := map[string]int{}, r.lines()
	for range lengths {
		m, _, err := lines.message()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Trim(m.Key, m.Key[:1]) != "" {
			t.Fatal("a key is mixed up with another")
		}
		seen[m.Key[:1]] = len(m.Key)
	}
	for i, n := range lengths {
		if got := seen[string(rune('a'+i))]; got != n {
			t.Errorf("message %d has %d bytes, want %d", i, got, n)
		}
	}
}

func TestStreamsAtTheSamePlaceGetTheSameBytes(t *testing.T) {
	s, addr := tcp(t, 1, time.Minute)
	all := []*reader{
		dial(t, addr, get(""), false), dial(t, addr, get(""), false), dial(t, addr, get(""), true),
		dial(t, addr, "GET /? HTTP/1.0\r\n\r\n", false),
	}
	plain := all[3].res
	if len(plain.TransferEncoding) > 0 || len(all[0].res.TransferEncoding) != 1 || !plain.Close || !all[0].res.Close {
		t.Errorf("HTTP/1.0: %+v; HTTP/1.1: %+v", plain, all[0].res)
	}
	const records = 500
	for i := range records {
		s.m.Append(s.topic.Ref(0), fmt.Sprint("key ", i), "and another")
	}
	texts := make([]strings.Builder, len(all))
	for i, r := range all {
		body := bufio.NewReader(r.res.Body)
		for got, begun := 0, false; got < 2*records || !begun; {
			line, err := body.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if begun = begun || line == "event: message\n"; !begun {
				continue // when to come back is each one's own
			}
			texts[i].WriteString(line)
			got += strings.Count(line, "data: ")
		}
	}
	for i := range texts {
		if texts[i].String() != texts[0].String() {
			t.Errorf("stream %d was sent other bytes than the first", i)
		}
	}
}

func TestClientsThatVanishLeaveNothing(t *testing.T) {
	s, addr := tcp(t, 1, time.Minute)
	one := dial(t, addr, get(""), false)
	one.conn.Close()
	s.await(t, "the first leaves", s.empty)
	goroutines := runtime.NumGoroutine()
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for i := range 25 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, get(""))
				if (i+k)%3 > 0 { // else it goes before there is an answer
					_, _ = conn.Read(make([]byte, 64))
				}
				if (i+k)%2 == 0 {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				conn.Close()
			}
		})
	}
	for range 100 {
		s.m.Append(s.topic.Ref(0), strings.Repeat("k", 10_000))
	}
	all.Wait()
	s.await(t, "all leave", s.empty)
	s.await(t, "their goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := metric.Sum(t, s.reg, "gateway_connections"); n != 0 {
		t.Errorf("%v connections", n)
	}
	if n := metric.Sum(t, s.reg, "gateway_feeds"); n != 0 {
		t.Errorf("%v feeds", n)
	}
}

func TestAGoodbyeArrivesWhole(t *testing.T) {
	for _, c := range []struct {
		reason string
		end    func(t *testing.T, s *site)
	}{
		{"draining", func(t *testing.T, s *site) {
			if err := s.streams.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"token expired", func(_ *testing.T, s *site) {}},
		{"closed by an administrator", func(_ *testing.T, s *site) { s.connected.Dismiss(s.connected.List(nil)[0].ID) }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s, addr := tcp(t, 1, time.Minute)
			s.run(t)
			s.grant = access.Everyone()
			if c.reason == "token expired" {
				s.grant = &access.Grant{Principal: "ann", Expires: time.Now().Add(300 * time.Millisecond)}
			}
			r := dial(t, addr, get("")+get("pipelined=1"), false)
			s.await(t, "it begins", func() bool { return s.connected.Len() == 1 })
			if _, err := io.WriteString(r.conn, strings.Repeat("nobody reads this ", 500)); err != nil {
				t.Fatal(err)
			}
			c.end(t, s)
			for {
				ev, err := r.next()
				if err != nil {
					t.Fatal(err)
				}
				if ev.name == "closing" {
					if !strings.Contains(ev.data, c.reason) {
						t.Errorf("%+v", ev)
					}
					break
				}
			}
			if _, err := r.next(); err != io.EOF {
				t.Errorf("after the goodbye: %v", err)
			}
			if b, err := io.ReadAll(r.raw); len(b) > 0 || err != nil {
				t.Errorf("behind the stream: %q, %v", b, err)
			}
			r.conn.Close()
			s.await(t, "it leaves", s.empty)
		})
	}
}

func TestAClientThatGoesOnSendingIsCut(t *testing.T) {
	s, addr := tcp(t, 1, time.Minute)
	r := dial(t, addr, get(""), false)
	if _, err := io.CopyN(r.conn, zeros{}, 1<<20); err == nil {
		_, err = r.next()
		for err == nil {
			_, err = r.next()
		}
	}
	s.await(t, "it leaves", s.empty)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAnEventCostsNoAllocationForEachOfItsReaders(t *testing.T) {
	const rounds = 300
	cost := func(readers int) float64 {
		s, addr := tcp(t, 1, time.Minute)
		var reading sync.WaitGroup
		var all []*reader
		for range readers {
			r := dial(t, addr, get(""), false)
			all = append(all, r)
			reading.Go(func() {
				b := make([]byte, 16<<10)
				for {
					if _, err := r.conn.Read(b); err != nil {
						return
					}
				}
			})
		}
		round := func() {
			want := s.metricsDelivered() + int64(readers)
			s.m.Append(s.topic.Ref(0), "k")
			for s.metricsDelivered() < want {
				runtime.Gosched()
			}
		}
		s.await(t, "all begin", func() bool { return s.streams.Taken() == readers })
		for range 20 {
			round()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			round()
		}
		runtime.ReadMemStats(&after)
		for _, r := range all {
			r.conn.Close()
		}
		reading.Wait()
		s.await(t, "all leave", s.empty)
		return float64(after.Mallocs - before.Mallocs)
	}
	// The feed makes its list of who waits anew for each event, in a few steps for
	// all of them.
	one, many := cost(1), cost(41)
	if each := (many - one) / (40 * rounds); each > 0.2 {
		t.Errorf("%.3f allocations an event for each reader more (%v for one, %v for 41)", each, one, many)
	}
}

func (s *site) metricsDelivered() int64 {
	n, _ := s.metrics.Totals()
	return n
}

func TestADrainWithoutTimeCutsAndGoesOnRefusing(t *testing.T) {
	s, addr := tcp(t, 1, time.Minute)
	r := dial(t, addr, get(""), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.streams.Drain(ctx); err == nil {
		t.Error("a drain without time says that it was in time")
	}
	for {
		if _, err := r.next(); err != nil {
			break
		}
	}
	s.await(t, "it leaves", s.empty)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, get(""))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%+v, %v", res, err)
	}
}
