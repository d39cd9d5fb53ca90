package ask_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/ask"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
)

// deaf holds up who tells it anything for so long: what a stopped process does to the loop
// that looks after deadlines.
type deaf time.Duration

func (deaf) Accepted(ask.Accepted) {}

func (d deaf) Answered(*inbox.Reply, error) { time.Sleep(time.Duration(d)) }

// pause stops a gateway in a second, for so long: it answers nothing, and notes no time.
func (w *world) pause(id ident.NodeID, d time.Duration) {
	w.t.Helper()
	q := ask.Request{Topic: "orders", Timeout: time.Second, Record: record.Record{ContentType: "text/plain", Value: []byte("q")}}
	if _, err := w.asks[id].Begin(w.t.Context(), q, deaf(d)); err != nil {
		w.t.Fatal(err)
	}
	w.silence(id, true)
	time.AfterFunc(time.Second+d, func() { w.silence(id, false) })
}

func (w *world) silence(id ident.NodeID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = map[ident.NodeID]bool{id: is}
}

// A gateway that was paused takes no second reply: the first lies at the leader, and goes to
// everybody who waits.
func TestAGatewayThatWasPausedTakesNoSecondReply(t *testing.T) {
	for name, c := range map[string]struct {
		by   ident.NodeID
		soon bool // before the gateway has noticed
	}{
		"by another gateway, at once": {three, true},
		"by another gateway":          {three, false},
		"by itself, at once":          {one, true},
		"by itself":                   {one, false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				first := w.ask(one, named("c1"))
				w.pause(one, 4*time.Second)
				time.Sleep(1500 * time.Millisecond)
				if got := w.reply(two, w.requests()[0], "a"); got != "ok" { // after 2 s
					t.Error(got)
				}
				if !c.soon {
					time.Sleep(2 * time.Second)
					say(t, first, "[accepted 0 false reply a]")
				} else {
					w.silence(one, false)
				}
				if got := w.reply(c.by, w.requests()[0], "b"); got != "requester-gone" {
					t.Error("a second one:", got)
				}
				time.Sleep(3 * time.Second)
				say(t, first, "[accepted 0 false reply a]")
				say(t, w.ask(one, named("c1")), "[accepted 0 true reply a]")
				say(t, w.ask(three, named("c1")), "[accepted 0 true reply a]")
				time.Sleep(2 * time.Minute)
				nothing(t, w)
			})
		})
	}
}

// Where nobody replied meanwhile, a gateway that was paused takes the next reply as the first.
func TestAGatewayThatWasPausedTakesTheFirstReply(t *testing.T) {
	for name, by := range map[string]ident.NodeID{"by itself": one, "by another gateway": two, "by the leader": three} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				answered := w.ask(one, named("c0"))
				if got := w.reply(two, w.last(), "z"); got != "ok" {
					t.Error(got)
				}
				c, d := w.ask(one, named("c1")), w.ask(one, named("c2"))
				w.pause(one, 4*time.Second)
				time.Sleep(6 * time.Second)
				e := w.ask(two, named("c1"))
				synctest.Wait()
				to := w.requests()
				if got := w.reply(by, to[1], "a"); got != "ok" {
					t.Error(got)
				}
				if got := w.reply(by, to[1], "b"); got != "requester-gone" {
					t.Error("a second one:", got)
				}
				if got := w.reply(by, to[0], "y"); got != "requester-gone" {
					t.Error("a second one of what had its reply before:", got)
				}
				say(t, answered, "[accepted 0 false reply z]")
				say(t, c, "[accepted 1 false reply a]")
				say(t, e, "[accepted 1 true reply a]")
				// A leader that does not answer keeps nobody in the dark.
				w.lead(ident.NodeID{})
				if got := w.reply(by, to[2], "a"); got != "leader-unavailable" {
					t.Error(got)
				}
				say(t, d, "[accepted 2 false]")
				w.lead(two)
				if got := w.reply(by, to[2], "a"); got != "ok" {
					t.Error(got)
				}
				time.Sleep(time.Second)
				say(t, d, "[accepted 2 false reply a]")
				time.Sleep(2 * time.Minute)
				nothing(t, w)
			})
		})
	}
}
