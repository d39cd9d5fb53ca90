package replication

import (
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// A follower that waits long says twice where it stands, and is answered twice. The
// second answer is of a log that was cut meanwhile.
func TestASecondAnswerToTheSameCutsNothing(t *testing.T) {
	leader, follower := recordsOf(0, 1, 1, 3), recordsOf(0, 1, 1, 2)
	f := FollowView(View{Epoch: 3, Version: 1})
	s := rpc.Standing{Epoch: 3, End: follower.end(), Last: follower.last()}
	d := Compare(&s, record.At(leader.start), leader.end(), leader)
	own := func() Log { return Log{End: follower.end(), Last: follower.last(), HW: 2} }
	if turn := f.Answer(&d, own(), follower); turn.Step != Cut || !follower.cut(turn.To) {
		t.Fatalf("the first answer: %+v", turn)
	}
	if turn := f.Answer(&d, own(), follower); turn.Step != Ignore {
		t.Fatalf("the second answer: %+v", turn)
	}
	follower.batches = append(follower.batches, leader.batches[2]) // both agreed, and a push came
	if turn := f.Answer(&d, own(), follower); turn.Step != Ignore {
		t.Fatalf("the second answer, when both agree: %+v", turn)
	}
}

// Retention may drop voids that stand where the log goes on. Who begins there begins
// behind them, or it would be sent what is no longer kept.
func TestALogBegunAnewStandsBehindTheVoidsThatWent(t *testing.T) {
	start := record.Position{Offset: 5, Voids: 2}
	leader := recordsOf(5, 3)
	for _, follower := range []*model{{}, {start: 5}, recordsOf(0, 1, 1)} {
		f := FollowView(View{Epoch: 3, Version: 1})
		s := rpc.Standing{Epoch: 3, End: follower.end(), Last: follower.last()}
		d := Compare(&s, start, leader.end(), leader)
		if turn := f.Answer(&d, Log{End: follower.end(), Last: follower.last()}, follower); turn.Step != Anew || turn.To != start {
			t.Fatalf("a follower that ends at %v is told %+v", follower.end(), turn)
		}
	}
	s := rpc.Standing{Epoch: 3, End: start}
	if d := Compare(&s, start, leader.end(), leader); !d.Agreed {
		t.Fatal("a log that begins there has to agree")
	}
}

// A proposal that was never answered may be taken after another one on the same version
// was refused because of it. Until the version has moved both sets are waited for.
func TestARefusalDoesNotSettleWhatWasNeverAnswered(t *testing.T) {
	a, b, c := ident.NodeID{1}, ident.NodeID{2}, ident.NodeID{3}
	now := time.Unix(0, 0)
	v := View{Epoch: 1, Version: 1, Leader: a, Replicas: []ident.NodeID{a, b, c}, ISR: []ident.NodeID{a, b}, MinInsync: 2}
	l := Lead(a, v, record.At(5), record.At(5), 0, time.Second, now)
	for _, n := range []ident.NodeID{b, c} {
		l.Agree(cluster.Life{Node: n, Epoch: 1}, l.view.Version, record.At(5), 1)
		l.Held(cluster.Life{Node: n, Epoch: 1}, 1, record.At(5))
	}
	if isr, ok := l.Propose(now, func(cluster.Life) bool { return true }); !ok || len(isr) != 3 {
		t.Fatal("nobody joins:", isr)
	}
	l.Unanswered()
	l.Declined(now)
	l.Appended(record.At(6))
	l.Synced(record.At(6))
	l.Held(cluster.Life{Node: b, Epoch: 1}, 1, record.At(6))
	if l.HW() != record.At(5) {
		t.Fatal("the high watermark moves without one who may be in sync:", l.HW())
	}
	if isr, open := l.Open(); !open || len(isr) != 2 {
		t.Fatal("what is proposed is not the ISR as it is:", isr)
	}
	if l.Again(now) || !l.Again(now.Add(restAfterRefusal)) {
		t.Fatal("it is proposed again after a pause")
	}
	v.Version = 2
	l.See(v, now)
	if l.HW() != record.At(6) {
		t.Fatal("the next version does not settle it:", l.HW())
	}
}
