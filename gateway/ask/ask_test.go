package ask_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/ask"
	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// say holds what a client heard against what it should have.
func say(t *testing.T, c *client, want string) {
	t.Helper()
	synctest.Wait()
	if got := c.heard(); got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

// in plays in a bubble.
func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// nothing is left where nobody waits and nothing is kept.
func nothing(t *testing.T, w *world) {
	t.Helper()
	synctest.Wait()
	for id, a := range w.asks {
		if n, open := a.Waiting(), a.Open(); n != 0 || open != 0 {
			t.Errorf("node %d: %d wait, %d inboxes", id[0], n, open)
		}
	}
}

func TestARequestEndsInItsReply(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for _, by := range []ident.NodeID{one, two} {
			c, other := w.ask(one), w.ask(one)
			to := w.requests()
			mine, theirs := to[len(to)-2], to[len(to)-1]
			if got := w.reply(by, mine, "a"); got != "ok" {
				t.Error(got)
			}
			say(t, c, fmt.Sprintf("[accepted %d false reply a]", len(to)-2))
			say(t, other, fmt.Sprintf("[accepted %d false]", len(to)-1))
			if got := w.reply(by, mine, "b"); got != "requester-gone" {
				t.Error("a second reply:", got)
			}
			w.reply(by, theirs, "c")
			say(t, other, fmt.Sprintf("[accepted %d false reply c]", len(to)-1))
		}
		nothing(t, w)
	})
}

func TestARequestEndsInTime(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		began := time.Now()
		c, later, standard := w.ask(one, within(3*time.Second)), w.ask(one, within(4*time.Second)), w.ask(one, within(0))
		time.Sleep(2 * time.Second)
		first := w.ask(one, within(10*time.Millisecond))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		for at, c := range map[time.Duration]*client{3 * time.Second: c, 4 * time.Second: later, 5 * time.Second: standard, 2010 * time.Millisecond: first} {
			if !strings.HasSuffix(c.heard(), "reply-timeout]") || c.at.Sub(began) != at {
				t.Errorf("%s after %s, want %s", c.heard(), c.at.Sub(began), at)
			}
		}
		if got := w.reply(two, w.last(), "late"); got != "requester-gone" {
			t.Error(got)
		}
		nothing(t, w)
	})
}

// What is quicker than the news that the request is kept waits for it.
func TestAReplyBeforeTheRequestIsKnownToBeKept(t *testing.T) {
	for _, id := range []string{"", "c1"} {
		in(t, func(t *testing.T, w *world) {
			quick := &quick{w: w}
			a := w.start(one, func(cfg *ask.Config) { cfg.Publisher = quick })
			c := &client{}
			if _, err := a.Begin(t.Context(), ask.Request{Topic: "orders", Correlation: id, Timeout: time.Second}, c); err != nil {
				t.Fatal(err)
			}
			if quick.said != "ok" {
				t.Error(quick.said)
			}
			say(t, c, "[accepted 0 false reply quick]")
		})
	}
}

// A request whose time is up before anybody knows whether it is kept ends in what becomes
// of it, if that is worse than having no reply.
func TestARequestWhoseRecordIsStillOnItsWay(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{nil, "[accepted 0 false reply-timeout]"}, {fault.New(fault.LeaderUnavailable, "none"), "[leader-unavailable]"}} {
		in(t, func(t *testing.T, w *world) {
			w.hold = make(chan struct{})
			w.spoil = func(res publish.Result) (publish.Result, bool) {
				res.Err = c.err
				return res, c.err == nil
			}
			x := w.ask(one, within(time.Second))
			time.Sleep(1020 * time.Millisecond)
			say(t, x, "[]")
			close(w.hold)
			say(t, x, c.want)
			nothing(t, w)
		})
	}
}

// quick is a publisher whose records are replied to before it says that they are kept.
type quick struct {
	w    *world
	said string
	err  error
}

func (q *quick) Publish(req publish.Request, done func(publish.Result)) {
	res := q.w.keep(&req)
	q.said = q.w.reply(one, q.w.last(), "quick")
	res.Err = q.err
	done(res)
}

// A reply is the proof that its request was kept, whatever its publisher hears.
func TestAReplyCountsThoughTheRequestFailed(t *testing.T) {
	for _, id := range []string{"", "c1"} {
		in(t, func(t *testing.T, w *world) {
			a := w.start(one, func(cfg *ask.Config) {
				cfg.Publisher = &quick{w: w, err: fault.New(fault.UnknownOutcome, "lost")}
			})
			c := &client{}
			if _, err := a.Begin(t.Context(), ask.Request{Topic: "orders", Correlation: id}, c); err != nil {
				t.Fatal(err)
			}
			say(t, c, "[reply quick]")
		})
	}
}

func TestARequestThatIsNotKept(t *testing.T) {
	for _, id := range []string{"", "c1"} {
		in(t, func(t *testing.T, w *world) {
			w.spoil = func(res publish.Result) (publish.Result, bool) {
				res.Err = fault.New(fault.LeaderUnavailable, "none")
				return res, false
			}
			say(t, w.ask(one, named(id)), "[leader-unavailable]")
			nothing(t, w)
		})
	}
}

func TestNobodyServesATopic(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.serve(false)
		for _, id := range []string{"", "c1"} {
			say(t, w.ask(one, named(id)), "[no-responders]")
		}
		if w.count != 0 {
			t.Error("something was published")
		}
		nothing(t, w)
	})
}

// What was asked before is answered, also where nobody serves the topic any more: its reply
// lies at the gateway that was asked, or at the leader, or comes yet.
func TestARepeatWhereNobodyServesTheTopicAnyMore(t *testing.T) {
	for name, end := range map[string]func(w *world){"alive": func(*world) {}, "dead": gone["dead"], "in another life": gone["in another life"]} {
		t.Run("its gateway is "+name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.ask(one, named("c1"))
				w.ask(one, named("c2"))
				end(w)
				to := w.requests()
				if got := w.reply(two, to[0], "a"); got != "ok" {
					t.Error(got)
				}
				w.serve(false)
				say(t, w.ask(two, named("c1")), "[accepted 0 true reply a]")
				say(t, w.ask(three, named("c1")), "[accepted 0 true reply a]")
				late := w.ask(two, named("c2"))
				say(t, late, "[accepted 1 true]")
				if got := w.reply(three, to[1], "b"); got != "ok" {
					t.Error(got)
				}
				say(t, late, "[accepted 1 true reply b]")
				say(t, w.ask(three, named("c1"), func(q *ask.Request) { q.Record.Value = []byte("other") }), "[idempotency-key-reused]")
				say(t, w.ask(three, named("c3")), "[no-responders]")
				if n := len(w.requests()); n != 2 {
					t.Errorf("%d requests", n)
				}
				time.Sleep(2 * time.Minute)
				nothing(t, w)
			})
		})
	}
}

// Whether there is an original only the leader can say: it is waited for, no longer than
// the client waits, and then nobody has said that there are no responders.
func TestARepeatWhereNobodyServesOrLeadsTheTopic(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		gone["dead"](w)
		if got := w.reply(two, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		w.serve(false)
		w.lead(ident.NodeID{})
		began := time.Now()
		c, hasty := w.ask(two, named("c1")), w.ask(three, named("c1"), within(2*time.Second))
		time.Sleep(3 * time.Second)
		say(t, c, "[]")
		say(t, hasty, "[leader-unavailable]")
		if took := hasty.at.Sub(began); took != 2*time.Second {
			t.Error(took)
		}
		w.lead(three)
		say(t, c, "[accepted 0 true reply a]")
	})
}

// Callers that go away leave nothing.
func TestCallersThatLeaveLeaveNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for range 10_000 {
			c := w.ask(one)
			c.call.Leave()
			c.call.Leave()
		}
		nothing(t, w)
		if got := w.reply(two, w.last(), "a"); got != "requester-gone" {
			t.Error(got)
		}
		c := w.ask(one, named("c1"), within(10*time.Second))
		c.call.Leave()
		if w.asks[one].Open() != 1 {
			t.Error("a request that can be repeated is kept")
		}
		if got := w.reply(two, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		say(t, w.ask(one, named("c1")), "[accepted 10000 true reply a]")
		say(t, c, "[accepted 10000 false]")
		time.Sleep(10 * time.Second)
		nothing(t, w)
	})
}

func TestInboxesThatNobodyGave(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one)
		to := w.last()
		for _, s := range []string{"", "x", to[:len(to)-1], strings.Repeat("A", len(to)), to + "\n"} {
			if got := w.reply(one, s, "a"); got != "requester-gone" {
				t.Errorf("%q: %s", s, got)
			}
		}
		if _, err := w.asks[two].Find(t.Context(), &access.Grant{}, to); !fault.Is(err, fault.Forbidden) {
			t.Error("without the right:", err)
		}
		if got := w.reply(two, to, strings.Repeat("x", 1001)); got != "message-too-large" {
			t.Error(got)
		}
		w.change(func(s *cluster.Snapshot) { delete(s.ByID, w.topic.ID) })
		if got := w.reply(two, to, "a"); got != "requester-gone" {
			t.Error("a topic that was deleted:", got)
		}
	})
}

func TestANodeTakesSoManyRequests(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.start(one, func(cfg *ask.Config) { cfg.Pending, cfg.KeptBytes = 2, 300 })
		a, b := w.ask(one), w.ask(one, named("c1"))
		say(t, w.ask(one), "[limit]")
		say(t, w.ask(one, named("c2")), "[limit]")
		say(t, w.ask(one, named("c1")), "[limit]")
		w.reply(one, w.requests()[0], "a")
		say(t, a, "[accepted 0 false reply a]")
		// A reply that there is no room for goes to those who wait.
		w.reply(one, w.requests()[1], strings.Repeat("x", 400))
		say(t, b, "[accepted 1 false reply "+strings.Repeat("x", 400)+"]")
		say(t, w.ask(one, named("c1")), "[accepted 1 true reply-timeout]")
		c := w.ask(one, named("c3"))
		c.call.Leave()
		if got := w.reply(one, w.last(), strings.Repeat("x", 400)); got != "limit" {
			t.Error(got)
		}
		if got := w.reply(one, w.last(), "y"); got != "ok" {
			t.Error(got)
		}
	})
}

// A gateway that has yet to hear of a topic, of its members or of the topic of an inbox
// finds out before it says that there is none.
func TestWhoHasNotHeardOfSomethingFindsOut(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		late := &memlog.Late{Now: w}
		w.start(two, func(cfg *ask.Config) { cfg.Topology = late })
		had := w.Snapshot()
		// missed has the gateway miss that there is something.
		missed := func(without func(s *cluster.Snapshot)) (before int) {
			w.change(without)
			late.Miss()
			w.change(func(s *cluster.Snapshot) {
				s.Topics, s.ByID, s.Groups, s.Nodes = had.Topics, had.ByID, had.Groups, had.Nodes
			})
			return late.Caught()
		}
		for name, without := range map[string]func(s *cluster.Snapshot){
			"topic":   func(s *cluster.Snapshot) { s.Topics, s.ByID = nil, nil },
			"members": func(s *cluster.Snapshot) { s.Groups = nil },
		} {
			for _, id := range []string{"", name} {
				before := missed(without)
				c := w.ask(two, named(id))
				synctest.Wait()
				if got := c.heard(); !strings.HasPrefix(got, "[accepted") || late.Caught() != before+1 {
					t.Errorf("the %s, correlation %q: %s, after %d", name, id, got, late.Caught()-before)
				}
				if again := w.ask(two, named(id)); late.Caught() != before+1 {
					t.Errorf("the %s: it finds out again: %s", name, again.heard())
				}
			}
		}
		for name, without := range map[string]func(s *cluster.Snapshot){
			"topic": func(s *cluster.Snapshot) { s.Topics, s.ByID = nil, nil },
			"node":  func(s *cluster.Snapshot) { delete(s.Nodes, one) },
		} {
			w.ask(one)
			synctest.Wait()
			before := missed(without)
			if got := w.reply(two, w.last(), "late"); got != "ok" || late.Caught() != before+1 {
				t.Errorf("the %s of an inbox: %s, after %d", name, got, late.Caught()-before)
			}
		}
		w.change(func(s *cluster.Snapshot) { s.Groups = nil })
		before := late.Caught()
		if c := w.ask(two); c.heard() != "[no-responders]" || late.Caught() != before+1 {
			t.Errorf("nobody serves it: %s", c.heard())
		}
		if c := w.ask(two, named("members")); !strings.HasPrefix(c.heard(), "[accepted") || late.Caught() != before+1 {
			t.Errorf("the repeat of what is known needs no member: %s", c.heard())
		}
	})
}
