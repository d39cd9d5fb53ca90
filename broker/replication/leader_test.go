package replication

import (
	"fmt"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

const lag = 2 * time.Second

// a, b and c are nodes, in their first lives.
var (
	a = ident.NodeID{'a'}
	b = ident.NodeID{'b'}
	c = ident.NodeID{'c'}
)

func life(n ident.NodeID) cluster.Life { return cluster.Life{Node: n, Epoch: 1} }
func everyone(cluster.Life) bool       { return true }

// at is the n-th second of the test.
func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func view(version uint64, isr ...ident.NodeID) View {
	return View{Epoch: 7, Version: version, Leader: a, Replicas: []ident.NodeID{a, b, c}, ISR: isr, MinInsync: 2}
}

// led is a leader a with the log up to offset 10 on its disk.
func led(v View) *Leader { return Lead(a, v, record.At(10), record.At(10), 0, lag, at(0)) }

func (l *Leader) agreed(n ident.NodeID, end ident.Offset) {
	l.Agree(life(n), l.view.Version, record.At(end), 6)
	l.Held(life(n), 7, record.At(end))
}

func (l *Leader) grow(to ident.Offset) {
	l.Appended(record.At(to))
	l.Synced(record.At(to))
}

func hwIs(t *testing.T, l *Leader, want ident.Offset) {
	t.Helper()
	if got := l.HW().Offset; got != want {
		t.Fatalf("the high watermark is %d, not %d", got, want)
	}
}

func proposes(t *testing.T, l *Leader, now time.Time, want ...ident.NodeID) {
	t.Helper()
	isr, ok := l.Propose(now, everyone)
	if fmt.Sprint(nodes(isr)) != fmt.Sprint(want) || ok != (want != nil) {
		t.Fatalf("proposes %v, not %v", isr, want)
	}
}

func nodes(lives []cluster.Life) (all []ident.NodeID) {
	for _, l := range lives {
		all = append(all, l.Node)
	}
	return all
}

func TestTheHighWatermarkWaitsForEveryInSyncReplica(t *testing.T) {
	l := led(view(1, a, b, c))
	hwIs(t, l, 0)
	l.agreed(b, 10)
	hwIs(t, l, 0)
	l.agreed(c, 8)
	hwIs(t, l, 8)
	if l.Settled() {
		t.Fatal("settled below the offset at which it took over")
	}
	l.Held(life(c), 7, record.At(10))
	hwIs(t, l, 10)
	l.Appended(record.At(12))
	l.Held(life(b), 7, record.At(12))
	l.Held(life(c), 7, record.At(12))
	hwIs(t, l, 10) // the leader's own disk counts like the others
	l.Synced(record.At(12))
	hwIs(t, l, 12)
}

func TestAWordOfAnotherEpochOrLifeDoesNotCount(t *testing.T) {
	l := led(view(1, a, b))
	l.Held(life(b), 7, record.At(10))
	hwIs(t, l, 0) // both have not agreed
	l.Agree(life(b), l.view.Version, record.At(5), 6)
	l.Held(life(b), 6, record.At(10))
	l.Held(cluster.Life{Node: b, Epoch: 2}, 7, record.At(10))
	l.Held(life(b), 7, record.At(11)) // more than there is
	hwIs(t, l, 0)
	l.Held(life(b), 7, record.At(9))
	hwIs(t, l, 9)
	l.Lost(cluster.Life{Node: b, Epoch: 9}, at(1))
	l.Held(life(b), 7, record.At(10))
	hwIs(t, l, 10) // another life's stream ended, not this one's
}

// Rule A1: a pending proposal adds to whom is waited for, and never to the count.
func TestProposedMembersAreWaitedForAndNotCounted(t *testing.T) {
	l := led(view(1, a, b))
	l.agreed(b, 10)
	l.agreed(c, 10)
	proposes(t, l, at(1), a, b, c)
	l.grow(20)
	l.Held(life(b), 7, record.At(20))
	hwIs(t, l, 10) // c may be in the ISR already
	l.Held(life(c), 7, record.At(15))
	hwIs(t, l, 15)
	l.Declined(at(1))
	hwIs(t, l, 20)
	proposes(t, l, at(1.01)) // not at once again
	l.Held(life(c), 7, record.At(20))
	proposes(t, l, at(1.1), a, b, c)
	l.See(view(2, a, b, c), at(1.2))
	l.grow(21)
	l.Held(life(b), 7, record.At(21))
	hwIs(t, l, 20)

	alone := led(view(1, a))
	alone.agreed(b, 10)
	proposes(t, alone, at(1), a, b)
	alone.grow(11)
	alone.Held(life(b), 7, record.At(11))
	hwIs(t, alone, 0) // |ISR| is 1 and min_insync 2, whatever is proposed
	alone.See(view(2, a, b), at(1.1))
	hwIs(t, alone, 11)
}

func TestAReplicaThatLeavesIsWaitedForUntilThatIsCommitted(t *testing.T) {
	l := led(view(1, a, b, c))
	l.agreed(b, 10)
	l.agreed(c, 10)
	l.Lost(life(c), at(1))
	proposes(t, l, at(1), a, b)
	l.grow(11)
	l.Held(life(b), 7, record.At(11))
	hwIs(t, l, 10)
	l.See(view(2, a, b), at(1.1))
	hwIs(t, l, 11)
}

// Rule C9: who stops is out after one replica_lag; who keeps up a little late stays.
func TestWhoIsBehindLeavesAfterOneLag(t *testing.T) {
	l := led(view(1, a, b, c))
	l.agreed(b, 10)
	l.agreed(c, 10)
	for i := range 100 { // ten seconds; b is always half a second late, c stops at 5 s
		now := float64(i) / 10
		l.grow(ident.Offset(10 + i))
		l.Held(life(b), 7, record.At(ident.Offset(10+max(0, i-5))))
		if now <= 5 {
			l.Held(life(c), 7, record.At(ident.Offset(10+i)))
		}
		l.Tick(at(now))
		isr, ok := l.Propose(at(now), everyone)
		if ok != (now >= 7.1) {
			t.Fatalf("after %.1f s: proposes %v, %v", now, isr, ok)
		}
		if ok {
			if fmt.Sprint(nodes(isr)) != fmt.Sprint([]ident.NodeID{a, b}) {
				t.Fatal(isr)
			}
			return
		}
	}
	t.Fatal("c stays in the ISR")
}

func TestWhoNeverSpeaksLeavesAfterOneLag(t *testing.T) {
	l := led(view(1, a, b, c))
	l.agreed(b, 10)
	l.Tick(at(1.9))
	proposes(t, l, at(1.9))
	l.Tick(at(2))
	proposes(t, l, at(2), a, b)
}

// Pitfalls A4, rule C1: a replica joins once it has reached both the high watermark
// and where the leader took over, in this epoch and in the life that counts.
func TestWhoMayJoin(t *testing.T) {
	l := led(view(1, a, b))
	l.agreed(b, 10)
	l.Agree(life(c), l.view.Version, record.At(10), 6)
	proposes(t, l, at(1)) // it has not said what is on its disk
	l.Held(life(c), 7, record.At(9))
	proposes(t, l, at(1)) // below where the leader took over
	l.Held(life(c), 7, record.At(10))
	if isr, ok := l.Propose(at(1), func(x cluster.Life) bool { return x.Node != c }); ok {
		t.Fatal("a life that is over joins:", isr)
	}
	l.Part(life(c), at(1))
	proposes(t, l, at(1)) // not agreed any more
	l.agreed(c, 10)
	proposes(t, l, at(1), a, b, c)

	// A new leader with an old high watermark lets others join before it has moved:
	// else nothing would ever move it.
	stale := Lead(a, view(1, a), record.At(10), record.At(10), 3, lag, at(0))
	stale.agreed(b, 10)
	proposes(t, stale, at(0.1), a, b)
}

func TestOneProposalAtATimeAndAnUnknownOneStays(t *testing.T) {
	l := led(view(1, a, b, c))
	l.agreed(b, 10)
	l.agreed(c, 10)
	l.Lost(life(c), at(1))
	proposes(t, l, at(1), a, b)
	l.Lost(life(b), at(1))
	proposes(t, l, at(5)) // still open
	if isr, open := l.Open(); !open || len(isr) != 2 {
		t.Fatal(isr, open)
	}
	l.See(view(1, a, b), at(5)) // no newer
	if _, open := l.Open(); !open {
		t.Fatal("settled by a version that is no newer")
	}
	l.See(view(2, a, b), at(5))
	proposes(t, l, at(5), a)
}

// A proposal whose outcome is unknown is made again. Meanwhile the one who is to join may
// have lost everything and begun another life, which the coordinator knows.
func TestWhoJoinsIsNamedInTheLifeThatCaughtUp(t *testing.T) {
	l := led(view(1, a, b))
	l.agreed(b, 10)
	l.agreed(c, 10)
	proposes(t, l, at(1), a, b, c)
	want := []cluster.Life{{Node: a}, {Node: b}, life(c)}
	says := func(when string) {
		t.Helper()
		if isr, _ := l.Open(); fmt.Sprint(isr) != fmt.Sprint(want) {
			t.Fatalf("%s: %v is proposed, not %v", when, isr, want)
		}
	}
	says("at once")
	l.Unanswered()
	l.Lost(life(c), at(1.1))
	says("when its stream has ended")
	l.Agree(cluster.Life{Node: c, Epoch: 2}, l.view.Version, record.At(0), 0)
	says("when its next life begins with nothing")
	l.Declined(at(2))
	want = []cluster.Life{{Node: a}, {Node: b}}
	says("when that was refused")
}

// The streams of two lives overlap for a moment, and what was read for the former one may be
// done when the next has spoken.
func TestWhatIsTrueOfAFormerLifeIsNotSaidOfTheNext(t *testing.T) {
	next := cluster.Life{Node: c, Epoch: 2}
	for what, of := range map[string]func(*Leader, cluster.Life){
		"parted": func(l *Leader, of cluster.Life) { l.Part(of, at(1)) },
		"spent":  func(l *Leader, of cluster.Life) { l.Spent(of, record.At(10), at(1)) },
		"agreed": func(l *Leader, of cluster.Life) {
			if l.Agree(of, l.view.Version, record.At(5), 6) {
				t.Error("a former life is agreed with")
			}
		},
	} {
		l := led(view(1, a, b))
		l.Agree(next, l.view.Version, record.At(10), 6)
		l.Held(next, 7, record.At(10))
		was := *l.Follower(c)
		of(l, life(c))
		if f := l.Follower(c); *f != was {
			t.Errorf("a former life is %s: %+v was %+v", what, *f, was)
		}
	}
}

func TestVoidsCountLikeRecords(t *testing.T) {
	l := led(view(1, a, b))
	l.Agree(life(b), l.view.Version, record.At(10), 7)
	l.Held(life(b), 7, record.At(10))
	void := record.Position{Offset: 10, Voids: 1}
	l.Appended(void)
	l.Synced(void)
	if l.HW() != record.At(10) {
		t.Fatal(l.HW())
	}
	l.Held(life(b), 7, void)
	if l.HW() != void {
		t.Fatal(l.HW())
	}
}

// An unclean election may choose one that has only heard of what is committed.
func TestNothingCountsAsCommittedThatIsNotOnTheLeadersDisk(t *testing.T) {
	v := View{Epoch: 7, Version: 1, Leader: a, Replicas: []ident.NodeID{a}, ISR: []ident.NodeID{a}, MinInsync: 1, Unclean: 7}
	l := Lead(a, v, record.At(10), record.At(4), 8, lag, at(0))
	hwIs(t, l, 4)
	l.Synced(record.At(10))
	hwIs(t, l, 10)
}

// A leader whose own log is damaged may be the one who lacks records: those who have them
// stay in sync, however far behind they are. Who has everything may join.
func TestADamagedLeaderTakesNobodyOutOfTheISR(t *testing.T) {
	l := led(view(1, a, b))
	l.agreed(b, 10)
	l.agreed(c, 10)
	l.Harmed()
	l.Lost(life(b), at(1))
	proposes(t, l, at(1), a, b, c)
}

// Where nobody else is in sync with a leader whose log is damaged, a follower that has got
// all that can be read of it may lead instead.
func TestWhoHasAllThatADamagedLeaderCanGiveMaySucceedIt(t *testing.T) {
	succeeds := func(l *Leader, now float64, want cluster.Life) {
		t.Helper()
		if who, ok := l.Successor(at(now), everyone); who != want || ok != (want != cluster.Life{}) {
			t.Fatalf("%v after %v seconds: %v, not %v", ok, now, who, want)
		}
	}
	nobody := cluster.Life{}
	l := led(view(1, a))
	l.agreed(b, 4)
	l.Harmed()
	succeeds(l, 5, nobody) // it is sent more
	l.Follower(b).Sent(record.At(5), 6, 0)
	l.Spent(life(b), record.At(5), at(5))
	succeeds(l, 9, nobody) // and may have had no room for it
	l.agreed(b, 5)
	l.Spent(life(b), record.At(5), at(5))
	l.agreed(c, 6)
	succeeds(l, 6.9, nobody) // c has more, and may be the one who has everything
	succeeds(l, 7, life(b))
	l.Spent(life(c), record.At(6), at(7))
	succeeds(l, 7, life(c))
	if who, ok := l.Successor(at(8), func(l cluster.Life) bool { return l != life(c) }); !ok || who != life(b) {
		t.Fatalf("a life that is over is chosen: %v", who)
	}
	l.Lost(life(c), at(8))
	succeeds(l, 8, life(b))
	l.agreed(b, 5)
	succeeds(l, 9, nobody) // it says anew where it stands
}
