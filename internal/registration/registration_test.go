package registration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/registration"
)

var me = ident.NodeID{7}

// scene is a coordinator and a data folder, and writes down what happens.
type scene struct {
	*feed.Feed
	mu      sync.Mutex
	log     []string
	now     cluster.Snapshot
	noted   ident.BrokerEpoch
	down    bool          // nobody answers
	slow    time.Duration // before a renewal is answered
	refuse  error         // of Register
	lag     bool          // the feed does not follow
	decided uint64        // by the coordinator that grants leases
	mute    bool          // nobody hears that it is activated
	full    bool          // its disk is
	said    bool          // that it is, in the latest renewal
}

func newScene() *scene {
	return &scene{Feed: feed.New(), now: cluster.Snapshot{Index: 10, Nodes: map[ident.NodeID]*cluster.Node{}}}
}

func (s *scene) say(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

func (s *scene) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.log, "; ")
	s.log = nil
	return out
}

func (s *scene) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// edit changes the node under the next index.
func (s *scene) edit(change func(*cluster.Node)) {
	s.now.Index++
	n := cluster.Node{ID: me}
	if old := s.now.Nodes[me]; old != nil {
		n = *old
	}
	change(&n)
	s.now.Nodes = maps.Clone(s.now.Nodes)
	s.now.Nodes[me] = &n
	if !s.lag {
		c := s.now
		s.Publish(&c)
	}
}

func (s *scene) Propose(_ context.Context, c cluster.Change) (cluster.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "nobody leads")
	}
	latest := func(l cluster.Life) bool {
		n := s.now.Nodes[l.Node]
		return n != nil && n.Life() == l && !n.Over()
	}
	switch {
	case c.Register != nil:
		if s.refuse != nil {
			return cluster.Answer{}, s.refuse
		}
		s.edit(func(n *cluster.Node) { n.BrokerEpoch, n.State = ident.BrokerEpoch(s.now.Index), cluster.Dead })
		s.say("register last=%d unfit=%d", c.Register.Last, len(c.Register.Unfit))
		return cluster.Answer{Index: s.now.Index, Epoch: ident.BrokerEpoch(s.now.Index)}, nil
	case c.Unfit != nil:
		s.edit(func(*cluster.Node) {})
		s.say("unfit %d", len(c.Unfit.Partitions))
	case c.Activate != nil:
		if !latest(cluster.Life{Node: c.Activate.Node, Epoch: c.Activate.Epoch}) {
			return cluster.Answer{}, fault.New(fault.Fenced, "over")
		}
		s.edit(func(n *cluster.Node) { n.State, n.Activated = cluster.Alive, n.BrokerEpoch })
		s.say("activate %d", c.Activate.Epoch)
		if s.mute {
			return cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "another one leads from now on")
		}
	case c.Expire != nil:
		s.edit(func(n *cluster.Node) { n.State, n.Ended = cluster.Dead, n.BrokerEpoch })
		s.say("expire %d", c.Expire.Lives[0].Epoch)
	}
	return cluster.Answer{Index: s.now.Index}, nil
}

func (s *scene) Renew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error) {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return cluster.Lease{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = r.Full
	n := s.now.Nodes[r.Life.Node]
	switch {
	case s.down:
		return cluster.Lease{}, fault.New(fault.CoordinatorUnavailable, "nobody leads")
	case n == nil || n.Life() != r.Life || n.Over():
		return cluster.Lease{}, fault.New(fault.Fenced, "over")
	}
	return cluster.Lease{For: 2 * time.Second, Leader: me, Index: s.decided}, nil
}

func (s *scene) Noted() ident.BrokerEpoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noted
}

func (s *scene) Note(e ident.BrokerEpoch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted = e
	s.say("note %d", e)
	return nil
}

// run lives, and gives what ends it.
func (s *scene) run(t *testing.T, unfit int) (r *registration.Registration, end func() error) {
	r = registration.New(registration.Config{
		Coordinator: s, Notes: s,
		Node:  func() cluster.Node { return cluster.Node{ID: me, Name: "seven"} },
		Unfit: func() []ident.Partition { return make([]ident.Partition, unfit) },
		Full: func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.full
		},
		OnLife: func(_ context.Context, l cluster.Life, declared []ident.Partition, at *cluster.Snapshot) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(declared) != unfit {
				t.Errorf("life %d begins with %d damaged partitions of %d", l.Epoch, len(declared), unfit)
			}
			s.say("life %d at %d", l.Epoch, at.Index)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error { cancel(); return <-done }
}

func TestALifeFromItsBeginningToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.noted = 5
		r, end := s.run(t, 0)
		<-r.Registered()
		synctest.Wait()
		if got, want := s.told(), "register last=5 unfit=0; note 11; life 11 at 11; activate 11"; got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
		if !r.Holds() || r.Life() != (cluster.Life{Node: me, Epoch: 11}) {
			t.Fatal("it has no lease")
		}
		if l, ok := r.Lease(); !ok || l.Leader != me {
			t.Fatal(l, ok)
		}
		time.Sleep(time.Minute)
		if !r.Holds() || s.told() != "" {
			t.Fatal("the lease was not kept")
		}
		for _, full := range []bool{true, false} {
			s.set(func() { s.full = full })
			time.Sleep(time.Second)
			s.set(func() {
				if s.said != full {
					t.Errorf("full %v, and said so: %v", full, s.said)
				}
			})
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if got := s.told(); got != "expire 11" || r.Holds() {
			t.Fatal(got)
		}
	})
}

// Whoever probes the node then must not take it for one that was started anew.
func TestALifeHasBegunBeforeItsNodeHearsThatItCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mute = true
		r, end := s.run(t, 0)
		time.Sleep(time.Minute)
		var n cluster.Node
		s.set(func() { n = *s.now.Nodes[me] })
		if n.Activated != 11 || r.Life().Epoch != 0 {
			t.Fatalf("%+v, and the node is in life %v", n, r.Life())
		}
		life := cluster.Life{Node: me, Epoch: 11}
		if r.Begun() != life {
			t.Errorf("begun is %v, not %v", r.Begun(), life)
		}
		s.set(func() { s.mute = false })
		<-r.Registered()
		if r.Begun() != life || r.Life() != life {
			t.Errorf("begun is %v, and it is in %v", r.Begun(), r.Life())
		}
		s.set(func() {
			s.edit(func(n *cluster.Node) { n.State, n.Ended = cluster.Dead, n.BrokerEpoch })
			s.mute = true
		})
		time.Sleep(time.Second)
		if r.Begun() == life {
			t.Error("a life that is over goes on")
		}
		_ = end() // it was ended here
	})
}

func TestManyUnfitPartitionsAreSaidBeforeTheLifeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		r, end := s.run(t, 2*cluster.MaxUnfit+1)
		<-r.Registered()
		if got := s.told(); !strings.HasPrefix(got, "register last=0 unfit=4000; unfit 4000; unfit 1; note 11; life 11 at 13") {
			t.Fatal(got)
		}
		_ = end() // it was ended here
	})
}

func TestNothingCountsBeforeTheFeedHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.lag = true
		r, end := s.run(t, 0)
		time.Sleep(time.Minute)
		if got := s.told(); got != "register last=0 unfit=0" || r.Holds() {
			t.Fatal(got)
		}
		s.set(func() { s.lag = false; c := s.now; s.Publish(&c) })
		<-r.Registered()
		_ = end() // it was ended here
	})
}

func TestALeaseCountsFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.slow = 900 * time.Millisecond
		r, end := s.run(t, 0)
		<-r.Registered()
		time.Sleep(910 * time.Millisecond) // the first answer is there
		s.set(func() { s.down = true; s.slow = 0 })
		if !r.Holds() {
			t.Fatal("no lease")
		}
		time.Sleep(1080 * time.Millisecond) // 1.99 s after the first was sent
		if !r.Holds() {
			t.Fatal("the lease ended early")
		}
		time.Sleep(20 * time.Millisecond)
		if r.Holds() {
			t.Fatal("the lease counts from the answer")
		}
		// The life goes on without it, and has one again at once.
		s.set(func() { s.down = false })
		time.Sleep(200 * time.Millisecond)
		if !r.Holds() || r.Life().Epoch != 11 {
			t.Fatal("no lease after the coordinator came back")
		}
		_ = end() // it was ended here
	})
}

// Renewals alone, without the feed, keep a life and nothing that it led.
func TestALeaseLeadsNothingThatItsCoordinatorKnewBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		r, end := s.run(t, 0)
		<-r.Registered()
		time.Sleep(time.Second)
		if !r.Leads(11) {
			t.Fatal("a lease without news does not count")
		}
		s.set(func() { s.decided = 12 }) // it follows what others decide, and this node does not
		time.Sleep(time.Second)
		if !r.Leads(11) || !r.Leads(12) {
			t.Fatal("a newer lease takes the older one away")
		}
		time.Sleep(time.Minute)
		if r.Leads(11) || !r.Leads(12) || !r.Holds() {
			t.Fatal("it leads by what is out of date")
		}
		_ = end() // it was ended here
	})
}

func TestALifeThatIsOverIsFollowedByAnother(t *testing.T) {
	for name, kill := range map[string]func(*scene){
		"the renewal says so": func(s *scene) {
			s.lag = true
			s.edit(func(n *cluster.Node) { n.Ended, n.State = n.BrokerEpoch, cluster.Dead })
			s.lag = false
		},
		"the feed says so": func(s *scene) {
			s.slow = time.Minute
			s.edit(func(n *cluster.Node) { n.Ended, n.State = n.BrokerEpoch, cluster.Dead })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				r, end := s.run(t, 0)
				<-r.Registered()
				time.Sleep(5 * time.Second)
				s.told()
				s.set(func() { kill(s) })
				time.Sleep(1600 * time.Millisecond)
				if got, want := s.told(), "register last=11 unfit=0; note 14; life 14 at 14; activate 14"; got != want {
					t.Fatalf("%s\nwant %s", got, want)
				}
				if r.Life().Epoch != 14 {
					t.Fatal(r.Life())
				}
				_ = end() // it was ended here
			})
		})
	}
}

func TestTwoProcessesOfOneNodeDoNotRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		_, end := s.run(t, 0)
		_, end2 := s.run(t, 0)
		time.Sleep(time.Minute)
		n := strings.Count(s.told(), "register")
		if n > 130 {
			t.Fatalf("%d registrations in a minute", n)
		}
		_, _ = end(), end2() // they were ended here
	})
}

func TestARefusalEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.refuse = fault.New(fault.Invalid, "the name belongs to another node")
		_, end := s.run(t, 0)
		synctest.Wait()
		if err := end(); err == nil || !strings.Contains(err.Error(), "belongs to another") {
			t.Fatal(err)
		}
	})
}

func TestARegistrationWaitsForACoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.down = true
		r, end := s.run(t, 0)
		time.Sleep(time.Hour)
		s.set(func() { s.down = false })
		time.Sleep(2 * time.Second)
		if !r.Holds() {
			t.Fatal("not registered")
		}
		_ = end() // it was ended here
	})
}

type badNotes struct{ *scene }

func (badNotes) Note(ident.BrokerEpoch) error { return errors.New("EIO") }

func TestAnEpochThatCannotBeNotedCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		r := registration.New(registration.Config{Coordinator: s, Notes: badNotes{s}, Node: func() cluster.Node { return cluster.Node{ID: me} }})
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "EIO") {
			t.Fatal(err)
		}
		if got := s.told(); slices.Contains(strings.Fields(got), "activate") {
			t.Fatal(got)
		}
	})
}

// What a node has to say of itself anew it says in the registration of another life. One
// that is over already is not ended again: that would end what came after it.
func TestALifeThatIsRenouncedIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		r, end := s.run(t, 2)
		r.Renounce(cluster.Life{}, errors.New("there is none yet"))
		<-r.Registered()
		time.Sleep(5 * time.Second)
		s.told()
		former := r.Life()
		r.Renounce(former, errors.New("damage"))
		synctest.Wait()
		if got, want := s.told(), "register last=11 unfit=2; note 13; life 13 at 13; activate 13"; got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
		if r.Life().Epoch != 13 || !r.Holds() {
			t.Fatal(r.Life())
		}
		r.Renounce(former, errors.New("late"))
		time.Sleep(time.Minute)
		if got := s.told(); got != "" {
			t.Fatal(got)
		}
		_ = end() // it was ended here
	})
}

// A node that finds out, while its parts take a life, what its registration should have
// said begins another before that one counts.
func TestALifeThatItsPartsRefuseNeverCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		var known []ident.Partition
		r := registration.New(registration.Config{
			Coordinator: s, Notes: s, Node: func() cluster.Node { return cluster.Node{ID: me} },
			Unfit: func() []ident.Partition { return known },
			OnLife: func(_ context.Context, l cluster.Life, unfit []ident.Partition, _ *cluster.Snapshot) error {
				if len(unfit) == 0 {
					known = make([]ident.Partition, 1)
					return fault.New(fault.Fenced, "life %d has said nothing of it", l.Epoch)
				}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		<-r.Registered()
		if got, want := s.told(), "register last=0 unfit=0; note 11; register last=11 unfit=1; note 12; activate 12"; got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
