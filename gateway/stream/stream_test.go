package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/seats"
	"tidewire/gateway/stream"
	"tidewire/gateway/turn"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipes) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// site serves streams of a topic: GET /?cursor=…&partition=…, over HTTP/1.1 and
// cleartext HTTP/2.
type site struct {
	m       *memory
	topic   *cluster.Topic
	hub     *deliver.Hub
	streams *stream.Set
	metrics *deliver.Metrics
	reg     *prometheus.Registry
	client  *http.Client
	served  sync.WaitGroup

	seats     *seats.Seats
	connected *connection.Set
	grant     *access.Grant // of requests to come; nil: none
}

func newSite(t *testing.T, partitions int, http2 bool) *site {
	t.Helper()
	l := newPipes()
	var p http.Protocols
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	tr := &http.Transport{DialContext: l.dial, Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return serveSite(t, l, &http.Client{Transport: tr}, partitions, 0)
}

// serveSite serves a site at a listener until the test ends.
func serveSite(t *testing.T, l net.Listener, client *http.Client, partitions int, slow time.Duration) *site {
	t.Helper()
	s := &site{m: newMemory(), reg: prometheus.NewRegistry(), client: client}
	s.metrics = deliver.NewMetrics(s.reg)
	s.topic = s.m.topic("orders", partitions)
	s.hub = startHub(t, s.m, deliver.Config{Metrics: s.metrics, RingBytes: 10_000})
	s.connected = connection.New()
	crew := turn.NewCrew()
	s.seats = seats.New(200, 0, 0, s.metrics.Refused)
	s.streams = stream.New(stream.Config{
		Crew: crew, Hub: s.hub, Deliveries: s.metrics, Registerer: s.reg, Connections: s.connected, Seats: s.seats, SlowConsumerTimeout: slow,
	})
	srv := &http.Server{Handler: http.HandlerFunc(s.serve), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	s.served.Go(func() { _ = srv.Serve(l) })
	ctx, cancel := context.WithCancel(context.Background())
	working, rest := context.WithCancel(context.Background())
	s.served.Go(func() { _ = crew.Run(working) })
	s.served.Go(func() { _ = s.streams.Run(ctx); rest() })
	t.Cleanup(func() { _ = srv.Close(); cancel(); s.served.Wait() })
	return s
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	defer s.served.Done()
	q := deliver.Request{Topic: s.topic, From: r.FormValue("from"), DefaultFrom: "latest", Cursor: r.FormValue("cursor")}
	q.HasCursor = q.Cursor != ""
	if r.FormValue("partition") != "" {
		q.Filter.Partition = at(0)
	}
	start, err := s.hub.Resolve(r.Context(), q)
	if err == nil {
		err = s.streams.Serve(w, r.WithContext(access.In(r.Context(), s.grant)), start)
	}
	if err != nil {
		reply.HTTP(w, err)
	}
}

// metric is the sum of a counter or gauge over its labels.
func (s *site) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

type events struct {
	*sseReader
	res    *http.Response
	cancel context.CancelFunc
}

func (s *site) open(t *testing.T, query string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://node/?"+query, nil)
	res, err := s.client.Do(req)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &events{newSSEReader(res.Body), res, cancel}
	t.Cleanup(e.close)
	return e
}

func (e *events) close() { e.cancel(); _ = e.res.Body.Close() }

func (e *events) must(t *testing.T) sse {
	t.Helper()
	ev, err := e.next()
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// message skips what is not an event for the application.
func (e *events) event(t *testing.T) sse {
	t.Helper()
	for {
		if ev := e.must(t); ev.dispatched {
			return ev
		}
	}
}

func both(t *testing.T, f func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, http2) })
		})
	}
}

func TestStreamGivesAPlaceBeforeAnyMessage(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 2, http2)
		e := s.open(t, "")
		h := e.res.Header
		if e.res.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-cache, no-transform" || h.Get("X-Accel-Buffering") != "no" {
			t.Fatalf("%d %v", e.res.StatusCode, h)
		}
		if ev := e.must(t); ev.retry < 1000 || ev.retry > 3000 {
			t.Fatalf("%+v", ev)
		}
		ev := e.must(t)
		if !ev.ownID || ev.dispatched {
			t.Fatalf("%+v", ev)
		}
		e.close()
		s.m.append(s.topic.Ref(1), "k")
		if ev = s.open(t, "cursor="+ev.lastID).event(t); ev.name != "message" || !strings.Contains(ev.data, `"key":"k"`) {
			t.Fatalf("%+v", ev)
		}
	})
}

func TestStreamOfOnePartitionNamesEveryPlace(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 2, http2)
		for range 200 {
			s.m.append(s.topic.Ref(0), "", "", "")
		}
		cur := ""
		for want := 0; want < 600; want += 20 {
			e := s.open(t, "partition=0&from=earliest")
			if cur != "" {
				e.close()
				e = s.open(t, "partition=0&cursor="+cur)
			}
			for i := range 20 {
				ev := e.event(t)
				var m message
				if err := json.Unmarshal([]byte(ev.data), &m); err != nil || !ev.ownID || m.Offset != ident.Offset(want+i) {
					t.Fatalf("%+v %v, want offset %d", ev, err, want+i)
				}
				cur = ev.lastID
			}
			e.close()
		}
	})
}

func TestStreamOfManyPartitionsRepeatsLittle(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 3, http2)
		total := 0
		write := func() {
			s.m.append(s.topic.Ref(ident.Index(total%3)), "")
			total++
		}
		for range 1000 {
			write()
		}
		seen, repeated, cur := map[[2]int]bool{}, 0, ""
		e := s.open(t, "from=earliest")
		since := 0
		for len(seen) < 1500 {
			ev := e.must(t)
			if ev.ownID {
				since, cur = 0, ev.lastID
			}
			if !ev.dispatched {
				continue
			}
			var m message
			if err := json.Unmarshal([]byte(ev.data), &m); err != nil {
				t.Fatal(err)
			}
			if !ev.ownID {
				if since++; since >= 64 {
					t.Fatalf("%d events without an id", since)
				}
			}
			place := [2]int{int(m.Partition), int(m.Offset)}
			if seen[place] {
				repeated++
			}
			seen[place] = true
			if len(seen)%333 == 0 && total < 1500 {
				for range 100 {
					write()
				}
				e.close()
				e = s.open(t, "cursor="+cur)
				since = 0
			}
		}
		if repeated > 5*64 {
			t.Fatalf("%d repeated", repeated)
		}
		// Alone, a message's place comes within a second.
		synctest.Wait()
		began := time.Now()
		write()
		for {
			if ev := e.must(t); ev.ownID && !ev.dispatched && ev.lastID != cur {
				break
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Fatalf("an id after %v", d)
		}
	})
}

func TestStreamSaysWhatHappens(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		s.m.append(s.topic.Ref(0), "", "")
		first := s.open(t, "from=earliest")
		cur := first.must(t)
		cur = first.must(t)
		s.m.retain(s.topic.Ref(0), 1)
		e := s.open(t, "cursor="+cur.lastID)
		ev := e.event(t)
		if ev.name != "gap" || !ev.ownID || !strings.Contains(ev.data, `"reason":"expired","requested":"0:0","earliest":"0:1","end":"0:2"`) {
			t.Fatalf("%+v", ev)
		}
		if ev = e.event(t); ev.name != "message" || !strings.Contains(ev.data, `"offset":1`) {
			t.Fatalf("%+v", ev)
		}
		began := time.Now()
		for range 2 {
			for ev = e.must(t); !ev.comment; ev = e.must(t) {
			}
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Fatalf("two comments after %v", d)
		}
		first.close()
		s.m.deleteTopic(s.topic)
		if ev = e.event(t); ev.name != "error" || !strings.Contains(ev.data, `"code":"topic-not-found"`) {
			t.Fatalf("%+v", ev)
		}
		if _, err := e.next(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestStreamsDrain(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		e := s.open(t, "")
		synctest.Wait()
		var drained sync.WaitGroup
		drained.Go(func() {
			if err := s.streams.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		defer drained.Wait()
		ev := e.event(t)
		var closing struct {
			Reason, Cursor string
			RetryAfter     string `json:"retry_after"`
		}
		if err := json.Unmarshal([]byte(ev.data), &closing); err != nil || ev.name != "closing" || closing.Reason != "draining" || closing.Cursor != ev.lastID {
			t.Fatalf("%+v %v", ev, err)
		}
		if d, err := time.ParseDuration(closing.RetryAfter); err != nil || d < time.Second || d > 6*time.Second+100*time.Millisecond {
			t.Fatal(closing)
		}
		if _, err := e.next(); err != io.EOF {
			t.Fatal(err)
		}
		if e = s.open(t, ""); e.res.StatusCode != 503 || e.res.Header.Get("Retry-After") == "" {
			t.Fatal(e.res.Status)
		}
	})
}

func TestStreamEndsASlowConsumer(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		s.open(t, "from=earliest") // and nobody reads
		for range 6000 {           // more than HTTP/2 lets wait unread
			s.m.append(s.topic.Ref(0), strings.Repeat("k", 1000))
		}
		time.Sleep(9 * time.Second)
		if n := s.metric(t, "gateway_slow_consumers_total"); n != 0 {
			t.Fatalf("%v after 9 s", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := s.metric(t, "gateway_slow_consumers_total"); n != 1 {
			t.Fatalf("%v after 11 s", n)
		}
		if n := s.metric(t, "gateway_connections"); n != 0 {
			t.Fatalf("%v connections", n)
		}
	})
}

func TestStreamsNoticeClientsThatVanish(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		for range 5 {
			var all []*events
			for range 200 {
				all = append(all, s.open(t, ""))
			}
			if e := s.open(t, ""); e.res.StatusCode != 503 || e.res.Header.Get("Retry-After") == "" {
				t.Fatalf("the 201st of 200: %s", e.res.Status)
			}
			for _, e := range all {
				e.close()
			}
			synctest.Wait()
		}
		if n := s.metric(t, "gateway_connections"); n != 0 {
			t.Fatalf("%v connections", n)
		}
		if n := s.metric(t, "gateway_feeds"); n != 0 {
			t.Fatalf("%v feeds", n)
		}
	})
}
