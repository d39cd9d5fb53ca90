package httpapi

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"tidewire/gateway/origin"
	"tidewire/internal/fault"
)

// comingBack is what an EventSource asks with once it has seen an id.
var comingBack = http.Header{"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64)"}, "Last-Event-Id": {"AQ"}}

func TestAnEventSourceThatComesBackIsNotAnsweredForTheMoment(t *testing.T) {
	for _, c := range []struct {
		name       string
		header     http.Header
		err        error
		unanswered bool
	}{
		{"a node that drains", comingBack, fault.New(fault.Draining, "it drains"), true},
		{"a node without room", comingBack, fault.New(fault.Limit, "no room").Overload(), true},
		{"a partition without a leader", comingBack, fault.New(fault.LeaderUnavailable, "no leader"), true},
		{"what waiting does not mend", comingBack, fault.New(fault.LeaderUnavailable, "damaged").Lasts(), false},
		{"a topic that is gone", comingBack, fault.New(fault.TopicNotFound, "gone"), false},
		{"a ticket that was used", comingBack, fault.New(fault.Unauthorized, "used"), false},
		{"a new EventSource", http.Header{"User-Agent": comingBack["User-Agent"]}, fault.New(fault.Draining, "it drains"), false},
		{"another client", http.Header{"User-Agent": {"curl/8"}, "Last-Event-Id": {"AQ"}}, fault.New(fault.Draining, "it drains"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/topics/orders/events", nil)
			r.Header = c.header
			var got error
			aborted := func() (aborted bool) {
				defer func() {
					if p := recover(); p != nil {
						aborted = p == http.ErrAbortHandler
					}
				}()
				got = resuming(func(http.ResponseWriter, *http.Request) error { return c.err })(nil, r)
				return false
			}()
			if aborted != c.unanswered || !aborted && got != c.err {
				t.Errorf("unanswered %v, and the answer %v", aborted, got)
			}
		})
	}
}

func TestAStartingNodeDoesNotAnswerAnEventSourceThatComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	why := func() []error { return []error{fault.New(fault.Draining, "it starts")} }
	srv := NewStartingServer(why, origin.New(nil, ""), slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-ended
	})
	for _, header := range []http.Header{comingBack, {"User-Agent": comingBack["User-Agent"]}} {
		req, err := http.NewRequest("GET", "http://"+l.Addr().String()+"/topics/orders/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Close = true
		res, err := http.DefaultTransport.RoundTrip(req)
		if back := header.Get("Last-Event-Id") != ""; back != errors.Is(err, io.EOF) {
			t.Errorf("%v: %v", header, err)
		}
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%v: status %d", header, res.StatusCode)
			}
		}
	}
}
