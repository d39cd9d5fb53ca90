package stream_test

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/metric"
)

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
		s.m.Append(s.topic.Ref(1), "k")
		if ev = s.open(t, "cursor="+ev.lastID).event(t); ev.name != "message" || !strings.Contains(ev.data, `"key":"k"`) {
			t.Fatalf("%+v", ev)
		}
	})
}

func TestStreamOfOnePartitionNamesEveryPlace(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 2, http2)
		for range 200 {
			s.m.Append(s.topic.Ref(0), "", "", "")
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
			s.m.Append(s.topic.Ref(ident.Index(total%3)), "")
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
		s.m.Append(s.topic.Ref(0), "", "")
		first := s.open(t, "from=earliest")
		cur := first.must(t)
		cur = first.must(t)
		s.m.Retain(s.topic.Ref(0), 1)
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
		s.m.DeleteTopic(s.topic)
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

func TestStreamsAreSentAwayWhileTheNodeServes(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		for range 2 {
			e := s.open(t, "")
			synctest.Wait()
			s.streams.Depart(t.Context())
			ev := e.event(t)
			if ev.name != "closing" || !strings.Contains(ev.data, `"reason":"draining"`) || strings.Contains(ev.data, `"retry_after":"0s"`) {
				t.Fatalf("%+v", ev)
			}
			if _, err := e.next(); err != io.EOF {
				t.Fatal(err)
			}
		}
	})
}

func TestStreamEndsASlowConsumer(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		s.open(t, "from=earliest") // and nobody reads
		for range 6000 {           // more than HTTP/2 lets wait unread
			s.m.Append(s.topic.Ref(0), strings.Repeat("k", 1000))
		}
		time.Sleep(9 * time.Second)
		if n := metric.Sum(t, s.reg, "gateway_slow_consumers_total"); n != 0 {
			t.Fatalf("%v after 9 s", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := metric.Sum(t, s.reg, "gateway_slow_consumers_total"); n != 1 {
			t.Fatalf("%v after 11 s", n)
		}
		if n := metric.Sum(t, s.reg, "gateway_connections"); n != 0 {
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
		if n := metric.Sum(t, s.reg, "gateway_connections"); n != 0 {
			t.Fatalf("%v connections", n)
		}
		if n := metric.Sum(t, s.reg, "gateway_feeds"); n != 0 {
			t.Fatalf("%v feeds", n)
		}
	})
}
