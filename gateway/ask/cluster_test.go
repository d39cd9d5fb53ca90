package ask_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/ask"
	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// The same request by two gateways at once is one: its responder gets it once, and both
// callers get the reply.
func TestARepeatElsewhereCollectsTheReply(t *testing.T) {
	for name, by := range map[string]ident.NodeID{"the first gateway": one, "the second": two, "another": three} {
		t.Run("by "+name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				first := w.ask(one, named("c1"))
				second, third := w.ask(two, named("c1")), w.ask(two, named("c1"))
				say(t, second, "[accepted 0 true]")
				if n := len(w.requests()); n != 1 {
					t.Fatalf("%d requests", n)
				}
				if got := w.reply(by, w.last(), "a"); got != "ok" {
					t.Error(got)
				}
				say(t, first, "[accepted 0 false reply a]")
				say(t, second, "[accepted 0 true reply a]")
				say(t, third, "[accepted 0 true reply a]")
				for _, at := range []ident.NodeID{one, two, three} { // they are kept until the deadline
					say(t, w.ask(at, named("c1")), "[accepted 0 true reply a]")
				}
				if got := w.reply(three, w.last(), "b"); got != "requester-gone" {
					t.Error(got)
				}
				say(t, w.ask(three, named("c1"), func(q *ask.Request) { q.Record.Value = []byte("other") }), "[idempotency-key-reused]")
				say(t, w.ask(two, named("c1"), func(q *ask.Request) { q.Principal = "ann" }), "[accepted 1 false]")
				time.Sleep(2 * time.Minute)
				nothing(t, w)
			})
		})
	}
}

func TestAnotherBodyUnderTheSameIDElsewhere(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		say(t, w.ask(two, named("c1"), func(q *ask.Request) { q.Record = record.Record{ContentType: "text/plain", Value: []byte("x")} }), "[idempotency-key-reused]")
		if n := w.asks[two].Open(); n != 0 {
			t.Errorf("%d inboxes", n)
		}
	})
}

// gone is how the gateway that was asked may be gone.
var gone = map[string]func(w *world){
	"dead": func(w *world) { w.reach(one, false); w.state(one, cluster.Dead) },
	"dead and not known as": func(w *world) {
		w.reach(one, false)
		time.AfterFunc(lease, func() { w.state(one, cluster.Dead) })
	},
	"in another life": func(w *world) { w.start(one) },
}

// A reply whose gateway is gone waits at the leader for a repeat, and a repeat for it.
func TestAReplyWhoseGatewayIsGone(t *testing.T) {
	for name, end := range gone {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.ask(one, named("c1"))
				w.ask(one)
				end(w)
				to := w.requests()
				if got := w.reply(two, to[0], "a"); got != "ok" {
					t.Error(got)
				}
				if got := w.reply(three, to[0], "b"); got != "requester-gone" {
					t.Error("a second one:", got)
				}
				say(t, w.ask(two, named("c1")), "[accepted 0 true reply a]")
				say(t, w.ask(three, named("c1")), "[accepted 0 true reply a]")

				if got := w.reply(two, to[1], "c"); got != "requester-gone" {
					t.Error("a request that cannot be repeated:", got)
				}
			})
			in(t, func(t *testing.T, w *world) {
				w.ask(one, named("c1"))
				end(w)
				c := w.ask(two, named("c1"))
				say(t, c, "[accepted 0 true]")
				if got := w.reply(three, w.last(), "a"); got != "ok" {
					t.Error(got)
				}
				time.Sleep(time.Second) // of a node that may live it is asked now and then
				say(t, c, "[accepted 0 true reply a]")
			})
		})
	}
}

// A node that is paused keeps a reply from coming to rest no longer than it counts as alive.
func TestAReplyDoesNotWaitForAPausedNode(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		w.pause(one, time.Minute)
		began := time.Now()
		if got := w.reply(two, w.last(), "a"); got != "ok" || time.Since(began) > lease+time.Second {
			t.Error(got, time.Since(began))
		}
		// The leader is paused too, and another one leads after a while.
		w.mu.Lock()
		w.mute[three] = true
		w.mu.Unlock()
		time.AfterFunc(3*time.Second, func() { w.lead(two) })
		w.ask(one, named("c2"))
		if got := w.reply(two, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
	})
}

// The gateway dies while another one collects there.
func TestAGatewayDiesWhileItIsWaitedAt(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		c := w.ask(two, named("c1"))
		synctest.Wait()
		gone["dead and not known as"](w)
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		time.Sleep(6 * time.Second)
		say(t, c, "[accepted 0 true reply a]")
	})
}

// Who collects follows a leader that moves; what a leader had is lost with it, and that
// ends in time.
func TestALeaderMovesWhileItIsWaitedAt(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		gone["dead"](w)
		began := time.Now()
		c, hasty := w.ask(two, named("c1")), w.ask(two, named("c1"), within(2*time.Second))
		time.Sleep(time.Second)
		w.lead(two)
		time.Sleep(10 * time.Second)
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		say(t, c, "[accepted 0 true reply a]")
		say(t, hasty, "[accepted 0 true reply-timeout]")
		if took := hasty.at.Sub(began); took != 2*time.Second {
			t.Error(took)
		}
	})
	in(t, func(t *testing.T, w *world) {
		began := time.Now()
		w.ask(one, named("c1"))
		gone["dead"](w)
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		w.lead(two)
		c := w.ask(three, named("c1"), within(90*time.Second))
		time.Sleep(2 * time.Minute)
		say(t, c, "[accepted 0 true reply-timeout]")
		if took := c.at.Sub(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("after %s: the deadline of the first call holds", took)
		}
		nothing(t, w)
	})
}

// A partition without a leader for a while.
func TestAReplyWaitsForALeader(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		gone["dead"](w)
		w.lead(ident.NodeID{})
		c := w.ask(two, named("c1"))
		time.AfterFunc(3*time.Second, func() { w.lead(two) })
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		say(t, c, "[accepted 0 true reply a]")
		w.lead(ident.NodeID{})
		began := time.Now()
		w.ask(two, named("c2"))
		w.reach(two, false)
		w.state(two, cluster.Dead)
		if got := w.reply(three, w.last(), "a"); got != "leader-unavailable" || time.Since(began) != 5*time.Second {
			t.Error(got, time.Since(began))
		}
	})
}

// An answer that is lost leaves the responder in doubt, and not in the wrong.
func TestAReplyOfWhichNobodyKnows(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		c, d := w.ask(one), w.ask(one, named("c1"))
		w.mu.Lock()
		w.lose = true
		w.mu.Unlock()
		to := w.requests()
		if got := w.reply(two, to[0], "a"); got != "unknown-outcome" {
			t.Error(got)
		}
		say(t, c, "[accepted 0 false reply a]")
		if got := w.reply(two, to[1], "a"); got != "unknown-outcome" {
			t.Error(got)
		}
		say(t, d, "[accepted 1 false reply a]")
	})
}

// What nobody knows of is published again by a repeat, and is one request: the reply to
// whichever record was kept comes.
func TestARepeatOfWhatMayBeKept(t *testing.T) {
	for name, kept := range map[string]bool{"it was": true, "it was not": false} {
		for where, at := range map[string]ident.NodeID{"here": one, "elsewhere": two} {
			t.Run(name+", "+where, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					w.spoil = func(res publish.Result) (publish.Result, bool) {
						res.Err = fault.New(fault.UnknownOutcome, "lost")
						return res, kept
					}
					say(t, w.ask(one, named("c1")), "[unknown-outcome]")
					w.spoil = nil
					c := w.ask(at, named("c1"))
					synctest.Wait()
					if n := len(w.requests()); n != 1 {
						t.Fatalf("%d requests", n)
					}
					if got := w.reply(three, w.last(), "a"); got != "ok" {
						t.Error(got)
					}
					dup := map[bool]string{true: "true", false: "false"}[kept && at == two]
					say(t, c, "[accepted 0 "+dup+" reply a]")
				})
			})
		}
	}
}

// The original is not there any more, or cannot be read.
func TestARepeatWhoseOriginalIsGone(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		w.Retain(w.topic.Ref(0), 1)
		say(t, w.ask(two, named("c1")), "[reply-timeout]")
		w.Serve(w.topic.Ref(0), false)
		c := w.ask(three, named("c1"), within(3*time.Second))
		began := time.Now()
		time.Sleep(4 * time.Second)
		say(t, c, "[reply-timeout]")
		if took := c.at.Sub(began); took != 3*time.Second {
			t.Error(took)
		}
	})
}

// A gateway that has no room for who collects is asked again, and not all the time.
func TestWhoCollectsAtACrowdedGateway(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.start(one, func(cfg *ask.Config) { cfg.Pending = 1 })
		c := w.ask(one, named("c1"))
		d := w.ask(two, named("c1"))
		time.Sleep(10 * time.Second)
		say(t, d, "[accepted 0 true]")
		w.mu.Lock()
		if w.calls > 200 { // each counts on its way back too
			t.Errorf("%d calls", w.calls)
		}
		w.mu.Unlock()
		c.call.Leave()
		time.Sleep(time.Second)
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		say(t, d, "[accepted 0 true reply a]")
	})
}

// A node that stops ends what waits, and what it collects.
func TestAGatewayThatStops(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		a, b := w.ask(two, named("c1")), w.ask(two)
		synctest.Wait()
		w.asks[two].Settle(t.Context(), 3*time.Second)
		say(t, a, "[accepted 0 true draining]")
		say(t, b, "[accepted 1 false draining]")
		say(t, w.ask(two), "[draining]")
		say(t, w.ask(two, named("c1")), "[draining]")
		say(t, w.ask(three, named("c1")), "[accepted 0 true]")
	})
}

// What a gateway that stops had asked, or keeps, is not lost: a repeat collects it.
func TestWhatAGatewayThatStopsLeaves(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		kept, waits := w.ask(one, named("c1")), w.ask(one, named("c2"))
		early := w.ask(two, named("c2"))
		if got := w.reply(two, w.requests()[0], "a"); got != "ok" {
			t.Error(got)
		}
		w.asks[one].Settle(t.Context(), time.Second)
		say(t, kept, "[accepted 0 false reply a]")
		say(t, waits, "[accepted 1 false draining]")
		say(t, w.ask(three, named("c1")), "[accepted 0 true reply a]")
		for _, by := range []ident.NodeID{one, three} { // it still runs, and answers others
			want := map[ident.NodeID]string{one: "ok", three: "requester-gone"}[by]
			if got := w.reply(by, w.requests()[1], "b"); got != want {
				t.Error(got)
			}
		}
		time.Sleep(time.Second)
		say(t, early, "[accepted 1 true reply b]")
		say(t, w.ask(three, named("c2")), "[accepted 1 true reply b]")
	})
}

// A batch that was sent again says that a request was there before. A gateway that stops
// does not look whether that was this one; whoever repeats it elsewhere is not told that its
// time is up.
func TestARequestThatWasSentAgainWhileItsGatewayStops(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.hold = make(chan struct{})
		w.spoil = func(res publish.Result) (publish.Result, bool) {
			res.Duplicate = true
			return res, true
		}
		a := w.ask(one, named("c1"))
		w.asks[one].Drain()
		close(w.hold)
		synctest.Wait()
		say(t, a, "[draining]")
		w.hold, w.spoil = nil, nil
		b := w.ask(two, named("c1"))
		synctest.Wait()
		say(t, b, "[accepted 0 true]")
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		say(t, b, "[accepted 0 true reply a]")
	})
}
