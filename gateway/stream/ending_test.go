package stream_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/testkit/activity"
)

// run keeps the set of connections for as long as the test lasts.
func (s *site) run(t *testing.T) {
	activity.Start(t, s.connected.Run)
}

func TestAStreamEndsWithItsGrantAndSaysSo(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 1, http2)
		s.run(t)
		s.grant = &access.Grant{Principal: "ann", Expires: time.Now().Add(90 * time.Second)}
		began := time.Now()
		e := s.open(t, "partition=0")
		e.must(t)
		s.m.Append(s.topic.Ref(0), "a")
		seen := e.event(t)
		if list := s.connected.List(nil); len(list) != 1 || list[0].Principal != "ann" || list[0].Transport != "sse" || list[0].Behind != 0 {
			t.Errorf("%+v", list)
		}
		again, ev := 0, e.must(t)
		for ; !ev.dispatched; ev = e.must(t) {
			again = max(again, ev.retry)
		}
		if ev.name != "closing" || !strings.Contains(ev.data, `"token expired"`) || ev.lastID != seen.lastID {
			t.Errorf("%+v", ev)
		}
		if again < 1000 || again > 3000 {
			t.Errorf("retry: %d before it", again)
		}
		if took := time.Since(began); took < 90*time.Second || took > 91*time.Second {
			t.Errorf("ended after %s", took)
		}
		if _, err := e.next(); err != io.EOF {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if n := len(s.connected.List(nil)); n != 0 {
			t.Errorf("%d are left", n)
		}
		// It goes on where it was.
		s.m.Append(s.topic.Ref(0), "b")
		s.grant = access.Everyone()
		if ev := s.open(t, "partition=0&cursor="+ev.lastID).event(t); !strings.Contains(ev.data, `"key":"b"`) {
			t.Errorf("%+v", ev)
		}
	})
}

func TestADismissedStreamSaysGoodbye(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSite(t, 2, http2)
		s.run(t)
		e := s.open(t, "")
		e.must(t)
		synctest.Wait()
		list := s.connected.List(nil)
		if len(list) != 1 || !s.connected.Dismiss(list[0].ID) {
			t.Fatalf("%+v", list)
		}
		s.connected.Dismiss(list[0].ID) // it may be gone already; a second one does no harm
		if ev := e.event(t); ev.name != "closing" || !strings.Contains(ev.data, "administrator") || !strings.Contains(ev.data, `"retry_after":"0s"`) {
			t.Errorf("%+v", ev)
		}
	})
}

func TestBehindCountsWhatIsStillToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2, false)
		s.m.Append(s.topic.Ref(0), "a", "b", "c")
		e := s.open(t, "from=earliest")
		for range 3 {
			e.event(t)
		}
		if got := s.connected.List(nil)[0].Behind; got != 0 {
			t.Errorf("%d behind at the end", got)
		}
		s.m.Serve(s.topic.Ref(1), false)
		if got := s.connected.List(nil)[0].Behind; got != 0 {
			t.Errorf("%d behind where nothing can be read", got)
		}
	})
}
