package session_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/ask"
	"tidewire/gateway/session"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memgroup"
)

// asking is a node that serves requests, and a topic with a member.
type asking struct {
	*grouped
	asks *ask.Ask
}

func newAsking(t *testing.T, change ...func(*session.Config)) *asking {
	t.Helper()
	a := &asking{}
	a.grouped = newGrouped(t, 1, append([]func(*session.Config){func(c *session.Config) {
		groups := c.Topology.(*memgroup.Cluster)
		a.asks = ask.New(ask.Config{
			Self: ident.NodeID{1}, Topology: groups, Changes: groups, Publisher: c.Publisher, Reader: c.Publisher.(ask.Reader),
			Mail: func(ident.NodeID) (ask.Mail, error) { return nil, fault.New(fault.LeaderUnavailable, "none") },
		})
		activity.Start(t, a.asks.Run)
		c.Ask = a.asks
	}}, change...)...)
	return a
}

// work joins the group that responds, and gives its subscription.
func (a *asking) work(t *testing.T, c *client) string {
	t.Helper()
	return a.join(t, c, `,"mode":"shared","from":"earliest"`)
}

// inbox of the next request, and its offset.
func inbox(t *testing.T, c *client) (to string, offset int) {
	t.Helper()
	m := c.messages(t, 1)[0]
	return replyTo(m), m.num("offset")
}

func replyTo(m object) string { return fmt.Sprint(m["headers"].(map[string]any)["Tidewire-Reply-To"]) }

func TestARequestOverAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		asker, worker := a.open(t), a.open(t)
		asker.send(t, `{"op":"request","id":1,"topic":"orders","value":1}`)
		if o := asker.want(t, "error"); o.str("code") != "no-responders" || o.num("id") != 1 {
			t.Error(o)
		}
		sub := a.work(t, worker)
		asker.send(t, `{"op":"request","id":2,"topic":"orders","key":"k","value":{"a":[1]},"timeout":"1m","correlation":"c1","headers":{"x":"y"}}`)
		if o := asker.want(t, "accepted"); o.num("id") != 2 || o["partition"] != 0.0 || o["offset"] != 0.0 || o.str("correlation") != "c1" || o["duplicate"] != false {
			t.Error(o)
		}
		to, offset := inbox(t, worker)
		worker.send(t, fmt.Sprintf(`{"op":"ack","sub":%q,"partition":0,"offset":%d}`, sub, offset))
		worker.send(t, fmt.Sprintf(`{"op":"reply","id":3,"to":%q,"value":"done","content_type":"text/plain","headers":{"z":"1"}}`, to))
		if o := worker.want(t, "replied"); o.num("id") != 3 {
			t.Error(o)
		}
		if o := asker.want(t, "reply"); o.num("id") != 2 || o.str("value") != "done" || o.str("content_type") != "text/plain" || fmt.Sprint(o["headers"]) != "map[z:1]" || o["status"] != nil {
			t.Error(o)
		}
		worker.send(t, fmt.Sprintf(`{"op":"reply","id":4,"to":%q,"value":2}`, to))
		if o := worker.want(t, "error"); o.str("code") != "requester-gone" || o.num("id") != 4 {
			t.Error(o)
		}

		asker.send(t, `{"op":"request","id":5,"topic":"orders","value":2}`)
		asker.want(t, "accepted")
		to, _ = inbox(t, worker)
		worker.send(t, fmt.Sprintf(`{"op":"reply","id":6,"to":%q,"value":{"why":"no"},"status":404}`, to))
		worker.want(t, "replied")
		if o := asker.want(t, "reply"); o.num("status") != 404 || fmt.Sprint(o["value"]) != "map[why:no]" {
			t.Error(o)
		}

		began := time.Now()
		asker.send(t, `{"op":"request","id":7,"topic":"orders","value":2}`)
		asker.want(t, "accepted")
		if o := asker.want(t, "error"); o.str("code") != "reply-timeout" || o.num("id") != 7 || time.Since(began) != 5*time.Second {
			t.Error(o, time.Since(began))
		}
		to, _ = inbox(t, worker)
		worker.send(t, fmt.Sprintf(`{"op":"reply","id":8,"to":%q,"value":2}`, to))
		if o := worker.want(t, "error"); o.str("code") != "requester-gone" {
			t.Error("a late reply:", o)
		}
	})
}

// That a request is kept goes with its reply where that is there a moment later, and else by
// itself.
func TestAcceptedWaitsAMomentForTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		asker, worker := a.open(t), a.open(t)
		a.work(t, worker)
		for i := range 3 {
			began := time.Now()
			asker.send(t, fmt.Sprintf(`{"op":"request","id":%d,"topic":"orders","value":1}`, i+1))
			to, _ := inbox(t, worker)
			worker.send(t, fmt.Sprintf(`{"op":"reply","to":%q,"value":1}`, to))
			worker.want(t, "replied")
			asker.want(t, "accepted")
			asker.want(t, "reply")
			if took := time.Since(began); took != 0 {
				t.Errorf("a reply that is there at once comes after %s", took)
			}
			synctest.Wait() // what is still being written would take it along
			began = time.Now()
			asker.send(t, fmt.Sprintf(`{"op":"request","id":%d,"topic":"orders","value":1}`, i+11))
			asker.want(t, "accepted")
			if took := time.Since(began); took == 0 || took > 2*time.Millisecond {
				t.Errorf("without a reply it comes after %s", took)
			}
			to, _ = inbox(t, worker)
			worker.send(t, fmt.Sprintf(`{"op":"reply","to":%q,"value":1}`, to))
			worker.want(t, "replied")
			asker.want(t, "reply")
		}
		// What else there is to say takes it along.
		began := time.Now()
		asker.send(t, `{"op":"request","id":21,"topic":"orders","value":1}`)
		to, _ := inbox(t, worker)
		asker.send(t, `{"op":"metadata","id":22,"topic":"orders"}`)
		asker.want(t, "accepted")
		asker.want(t, "metadata")
		if took := time.Since(began); took != 0 {
			t.Errorf("beside another answer it comes after %s", took)
		}
		asker.send(t, `{"op":"request","id":23,"topic":"orders","value":1}`)
		inbox(t, worker)
		asker.vanish() // with the timer set
		time.Sleep(time.Second)
		worker.send(t, fmt.Sprintf(`{"op":"reply","id":24,"to":%q,"value":1}`, to))
		if o := worker.want(t, "error"); o.str("code") != "requester-gone" {
			t.Error(o)
		}
	})
}

func TestRequestsThatAreNoneOverAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		c := a.open(t)
		a.work(t, c)
		for line, want := range map[string]string{
			`{"op":"request","id":1,"topic":"orders"}`:                                               "value",
			`{"op":"request","id":1,"topic":"orders","value":1,"timeout":"6m"}`:                      "timeout",
			`{"op":"request","id":1,"topic":"orders","value":1,"timeout":5}`:                         "timeout",
			`{"op":"request","id":1,"topic":"orders","value":1,"correlation":""}`:                    "correlation",
			`{"op":"request","id":1,"topic":"orders","value":1,"correlation":"a b"}`:                 "correlation",
			`{"op":"request","id":1,"topic":"orders","value":1,"partition":0}`:                       "partition",
			`{"op":"reply","id":1,"value":1}`:                                                        "to",
			`{"op":"reply","id":1,"to":"x"}`:                                                         "value",
			`{"op":"reply","id":1,"to":"x","value":1,"status":200}`:                                  "status",
			`{"op":"request","id":1,"topic":"orders","value":1,"headers":{"Tidewire-Reply-To":"x"}}`: "headers.Tidewire-Reply-To",
		} {
			c.send(t, line)
			if o := c.want(t, "error"); o.str("field") != want {
				t.Errorf("%s: %v", line, o)
			}
		}
	})
}

// A connection takes what it has asked along, but for what can be repeated.
func TestAConnectionThatEndsHasNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		worker := a.open(t)
		a.work(t, worker)
		for _, id := range []string{"", `,"correlation":"c1"`} {
			asker := a.open(t)
			asker.send(t, `{"op":"request","id":1,"topic":"orders","value":1`+id+`}`)
			asker.want(t, "accepted")
			to, _ := inbox(t, worker)
			asker.vanish()
			synctest.Wait()
			if n := a.asks.Waiting(); n != 0 {
				t.Errorf("%d wait", n)
			}
			worker.send(t, fmt.Sprintf(`{"op":"reply","id":3,"to":%q,"value":"v"}`, to))
			if id == "" {
				worker.want(t, "error")
				continue
			}
			worker.want(t, "replied")
			asker = a.open(t)
			asker.send(t, `{"op":"request","id":9,"topic":"orders","value":1`+id+`}`)
			if o := asker.want(t, "accepted"); o["duplicate"] != true {
				t.Error(o)
			}
			if o := asker.want(t, "reply"); o.str("value") != "v" || o.num("id") != 9 {
				t.Error(o)
			}
		}
	})
}

func TestRequestsOfAConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		worker, asker := a.open(t), a.open(t)
		a.join(t, worker, `,"mode":"shared","from":"earliest","credit":1`)
		for i := range session.MaxInFlightRequests {
			asker.send(t, fmt.Sprintf(`{"op":"request","id":%d,"topic":"orders","value":1,"timeout":"1m"}`, i+1))
			asker.want(t, "accepted")
		}
		asker.send(t, `{"op":"request","id":5000,"topic":"orders","value":1}`)
		if o := asker.want(t, "error"); o.str("code") != "limit" || o.str("limit") != "max_in_flight_requests" || o.num("id") != 5000 {
			t.Error(o)
		}
		to, _ := inbox(t, worker)
		worker.send(t, fmt.Sprintf(`{"op":"reply","to":%q,"value":1}`, to))
		asker.want(t, "reply")
		asker.send(t, `{"op":"request","id":5001,"topic":"orders","value":1}`)
		asker.want(t, "accepted")
	})
}

// A client that does not read what it asked for gets no more of it, and hears that.
func TestRepliesThatAClientDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t, func(c *session.Config) { c.SlowConsumerTimeout = time.Hour })
		worker, asker := a.open(t), a.open(t)
		a.work(t, worker)
		const n = 90
		for i := range n {
			asker.send(t, fmt.Sprintf(`{"op":"request","id":%d,"topic":"orders","value":1,"timeout":"2m"}`, i+1))
			asker.want(t, "accepted")
		}
		requests := worker.messages(t, n)
		gate := asker.pause()
		value := strings.Repeat("x", 60_000)
		for i, m := range requests {
			worker.send(t, fmt.Sprintf(`{"op":"reply","id":%d,"to":%q,"value":%q}`, i+1, replyTo(m), value))
		}
		synctest.Wait()
		close(gate)
		got := map[string]int{}
		for range n {
			o := asker.next(t)
			got[o.str("op")+o.str("code")]++
		}
		if got["reply"] == 0 || got["errorthrottled"] == 0 || got["reply"]+got["errorthrottled"] != n {
			t.Error(got)
		}
	})
}

// A node that drains lets requests end, for a moment, and then says so.
func TestADrainEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t)
		worker, asker := a.open(t), a.open(t)
		a.work(t, worker)
		asker.send(t, `{"op":"request","id":1,"topic":"orders","value":1,"timeout":"1m"}`)
		asker.want(t, "accepted")
		began := time.Now()
		a.asks.Settle(t.Context(), 2*time.Second)
		if o := asker.want(t, "error"); o.str("code") != "draining" || o.num("id") != 1 || time.Since(began) != 2*time.Second {
			t.Error(o, time.Since(began))
		}
		asker.send(t, `{"op":"request","id":2,"topic":"orders","value":1}`)
		if o := asker.want(t, "error"); o.str("code") != "draining" {
			t.Error(o)
		}
	})
}
