package ask_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// standing is the life of a node, and until when it has a lease of it.
type standing struct {
	epoch ident.BrokerEpoch
	until time.Time
}

func (w *world) life(id ident.NodeID) (ident.BrokerEpoch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[id]
	return l.epoch, time.Now().Before(l.until)
}

func (w *world) stand(id ident.NodeID, epoch ident.BrokerEpoch, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[id] = standing{epoch, time.Now().Add(lease)}
}

// lease is how long a node counts as alive that is not heard of.
const lease = 2 * time.Second

// unheard has a node not renew its lease any more: it is taken for dead a moment after that
// has run out. After so long it comes back, in another life of the same process.
func (w *world) unheard(id ident.NodeID, d time.Duration) {
	w.stand(id, 1, lease)
	time.AfterFunc(lease+100*time.Millisecond, func() { w.state(id, cluster.Dead) })
	time.AfterFunc(d+100*time.Millisecond, func() {
		w.change(func(s *cluster.Snapshot) {
			n := *s.Nodes[id]
			n.State, n.BrokerEpoch = cluster.Alive, 2
			s.Nodes[id] = &n
		})
		w.stand(id, 2, time.Hour)
	})
}

// pause stops a gateway for so long: it answers nothing, and takes part in nothing.
func (w *world) pause(id ident.NodeID, d time.Duration) {
	w.unheard(id, d)
	w.silence(id, true)
	time.AfterFunc(d, func() { w.silence(id, false) })
}

// isolate cuts a gateway off the others for so long.
func (w *world) isolate(id ident.NodeID, d time.Duration) {
	w.unheard(id, d)
	w.reach(id, false)
	time.AfterFunc(d, func() { w.reach(id, true) })
}

func (w *world) silence(id ident.NodeID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = map[ident.NodeID]bool{id: is}
}

// cutBetween cuts the link between two nodes alone.
func (w *world) cutBetween(a, b ident.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.split[[2]ident.NodeID{a, b}] = true
}

// A gateway that was taken for dead, and was not, takes no second reply: the first lies at
// the leader, and goes to everybody who waits.
func TestAGatewayThatWasTakenForDeadTakesNoSecondReply(t *testing.T) {
	for name, away := range map[string]func(w *world, id ident.NodeID, d time.Duration){"paused": (*world).pause, "cut off": (*world).isolate} {
		for where, by := range map[string]ident.NodeID{"by another gateway": three, "by itself": one} {
			t.Run(name+", "+where, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					first := w.ask(one, named("c1"))
					away(w, one, 6*time.Second)
					began := time.Now()
					if got, took := w.reply(two, w.requests()[0], "a"), time.Since(began); got != "ok" || took < lease || took > lease+time.Second {
						t.Error(got, took)
					}
					time.Sleep(6*time.Second - time.Since(began)) // it runs, and does not know yet
					if got := w.reply(by, w.requests()[0], "b"); got != "requester-gone" {
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
}

// A gateway that is cut off from all takes replies as long as nobody can have taken it for
// dead; after that it says that it cannot know.
func TestAGatewayThatIsCutOffDoesNotGuess(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		early, late := w.ask(one, named("c1")), w.ask(one, named("c2"))
		w.isolate(one, 20*time.Second)
		to := w.requests()
		time.Sleep(time.Second)
		if got := w.reply(one, to[0], "a"); got != "ok" {
			t.Error(got)
		}
		say(t, early, "[accepted 0 false reply a]")
		if got := w.reply(two, to[0], "b"); got != "leader-unavailable" && got != "ok" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		if got := w.reply(three, to[1], "c"); got != "ok" {
			t.Error(got)
		}
		began := time.Now()
		if got := w.reply(one, to[1], "d"); got != "leader-unavailable" || time.Since(began) != 5*time.Second {
			t.Error("of what others may have taken:", got, time.Since(began))
		}
		say(t, late, "[accepted 1 false]")
		time.Sleep(20 * time.Second)
		say(t, late, "[accepted 1 false reply c]")
	})
}

// Of a gateway that some nodes cannot reach, and that counts as alive, the others bring the
// reply; nobody else decides which one is the first.
func TestAGatewayThatSomeCannotReachDecidesAlone(t *testing.T) {
	for name, leads := range map[string]ident.NodeID{"itself": one, "who cannot reach it": two, "another": three} {
		t.Run("led by "+name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.lead(leads)
				plain, c, d := w.ask(one), w.ask(one, named("c1")), w.ask(one, named("c2"))
				w.cutBetween(one, two)
				to := w.requests()
				for i, by := range [][2]ident.NodeID{{two, three}, {two, three}, {three, two}} {
					first, second := by[0], by[1]
					if got := w.reply(first, to[i], "a"); got != "ok" {
						t.Error(i, got)
					}
					if got := w.reply(second, to[i], "b"); got != "requester-gone" {
						t.Error(i, "a second one:", got)
					}
					if got := w.reply(one, to[i], "b"); got != "requester-gone" {
						t.Error(i, "a third one:", got)
					}
				}
				say(t, plain, "[accepted 0 false reply a]")
				say(t, c, "[accepted 1 false reply a]")
				say(t, d, "[accepted 2 false reply a]")

				// Nobody is there to pass it on.
				e := w.ask(one, named("c3"))
				w.cutBetween(one, three)
				began := time.Now()
				for _, by := range []ident.NodeID{two, three} {
					if got := w.reply(by, w.last(), "a"); got != "leader-unavailable" {
						t.Error(got)
					}
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Error(took)
				}
				if got := w.reply(one, w.last(), "b"); got != "ok" {
					t.Error(got)
				}
				say(t, e, "[accepted 3 false reply b]")
			})
		})
	}
}

// Who collects at a gateway that does not answer goes to the leader as soon as that decides.
func TestARepeatDoesNotWaitLongerThanALife(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.ask(one, named("c1"))
		w.pause(one, time.Minute)
		repeat, began := w.ask(two, named("c1")), time.Now()
		if got := w.reply(three, w.last(), "a"); got != "ok" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		say(t, repeat, "[accepted 0 true reply a]")
		if took := repeat.at.Sub(began); took > lease+time.Second {
			t.Error(took)
		}
	})
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
				time.Sleep(time.Second) // until it lies where it was asked too
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

// A reply lies in the memory of a gateway that is taken for dead when the request is repeated
// elsewhere. Once it is back in another life, the repeat has it.
func TestARepeatFindsAGatewayThatIsBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first := w.ask(one, named("c1"))
		if got := w.reply(two, w.requests()[0], "a"); got != "ok" {
			t.Error(got)
		}
		say(t, first, "[accepted 0 false reply a]")
		w.isolate(one, 6*time.Second)
		time.Sleep(3 * time.Second)
		repeat := w.ask(three, named("c1"))
		time.Sleep(time.Second)
		say(t, repeat, "[accepted 0 true]")
		time.Sleep(8 * time.Second) // it waits at the leader for 5 s at a time
		say(t, repeat, "[accepted 0 true reply a]")
	})
}
