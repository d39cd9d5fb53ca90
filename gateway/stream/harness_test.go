package stream_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/seats"
	"tidewire/gateway/stream"
	"tidewire/gateway/turn"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
	"tidewire/internal/testkit/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site serves streams of a topic: GET /?cursor=…&partition=…, over HTTP/1.1 and
// cleartext HTTP/2.
type site struct {
	m       *memlog.Broker
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
	l := memnet.Listen()
	var p http.Protocols
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	tr := &http.Transport{DialContext: l.Dial, Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return serveSite(t, l, &http.Client{Transport: tr}, partitions, 0)
}

// serveSite serves a site at a listener until the test ends.
func serveSite(t *testing.T, l net.Listener, client *http.Client, partitions int, slow time.Duration) *site {
	t.Helper()
	s := &site{m: memlog.New(), reg: prometheus.NewRegistry(), client: client}
	s.metrics = deliver.NewMetrics(s.reg)
	s.topic = s.m.Topic("orders", partitions)
	s.hub = deliver.New(deliver.Config{Source: s.m, Topology: s.m, Metrics: s.metrics, RingBytes: 10_000})
	activity.Start(t, s.hub.Run)
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
		q.Filter.Partition = new(ident.Index)
	}
	start, err := s.hub.Resolve(r.Context(), q)
	if err == nil {
		err = s.streams.Serve(w, r.WithContext(access.In(r.Context(), s.grant)), start)
	}
	if err != nil {
		reply.HTTP(w, err)
	}
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

// message is what tests look at of a message.
type message struct {
	Partition ident.Index
	Offset    ident.Offset
	Key       string
}
