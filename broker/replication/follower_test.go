package replication

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// model is a log as a list of batches: the epoch of each, and whether it is of voids
// alone. A batch of records takes one offset.
type model struct {
	start   ident.Offset
	batches []modelBatch
}

type modelBatch struct {
	epoch ident.Epoch
	void  bool
	id    int // what it says: no two batches of one epoch say the same
}

func (b modelBatch) header(base ident.Offset) record.Header {
	h := record.Header{Base: base, Epoch: b.epoch, Span: 1}
	if b.void {
		h.Span = 0
	}
	return h
}

// positions gives where each batch begins, and the end of the last.
func (m *model) positions() []record.Position {
	p := record.At(m.start)
	all := []record.Position{p}
	for _, b := range m.batches {
		p = p.After(b.header(p.Offset))
		all = append(all, p)
	}
	return all
}

func (m *model) end() record.Position { p := m.positions(); return p[len(p)-1] }

func (m *model) last() ident.Epoch {
	if len(m.batches) == 0 {
		return 0
	}
	return m.batches[len(m.batches)-1].epoch
}

func (m *model) EpochEndPosition(e ident.Epoch) (last ident.Epoch, end record.Position) {
	for i, p := range m.positions() {
		if i == len(m.batches) || m.batches[i].epoch > e {
			return last, p
		}
		last = m.batches[i].epoch
	}
	panic("not reached")
}

func (m *model) cut(to record.Position) bool {
	i := slices.Index(m.positions(), to)
	if i < 0 {
		return false
	}
	m.batches = m.batches[:i]
	return true
}

// converge lets a follower and a leader find out where they part.
func converge(t testing.TB, leader, follower *model, hw ident.Offset) error {
	f := FollowView(View{Epoch: 99, Version: 1})
	for range 100 {
		s := rpc.Standing{Epoch: 99, End: follower.end(), Last: follower.last()}
		d := Compare(&s, record.At(leader.start), leader.end(), leader)
		switch turn := f.Answer(&d, Log{End: follower.end(), Last: follower.last(), HW: hw}, follower); turn.Step {
		case Go:
			return nil
		case Cut:
			if !turn.To.Before(follower.end()) || !follower.cut(turn.To) {
				t.Fatalf("cuts at %v a log that ends at %v", turn.To, follower.end())
			}
		case Anew:
			*follower = model{start: turn.To.Offset}
		case Halt:
			return turn.Why
		case Ignore:
			t.Fatal("an answer is ignored")
		}
	}
	t.Fatal("they never agree")
	return nil
}

// isPrefix says whether what the follower has is what the leader has.
func isPrefix(leader, follower *model) bool {
	if follower.start > leader.start { // it begins later: compare from there on
		i := slices.Index(leader.positions(), record.At(follower.start))
		return i >= 0 && len(follower.batches) <= len(leader.batches)-i && slices.Equal(follower.batches, leader.batches[i:i+len(follower.batches)])
	}
	// What lies below the leader's start cannot be compared.
	i := slices.Index(follower.positions(), record.At(leader.start))
	rest := follower.batches[max(i, 0):]
	return i >= 0 && len(rest) <= len(leader.batches) && slices.Equal(rest, leader.batches[:len(rest)])
}

// Whatever forks lie behind them, two logs agree in the end on what they share, and
// nothing that both share is cut without need.
func TestTwoLogsFindWhereTheyPart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := 0
		grow := func(m *model, epoch ident.Epoch, label string) {
			for range rapid.IntRange(0, 4).Draw(rt, label) {
				id++
				m.batches = append(m.batches, modelBatch{epoch, rapid.IntRange(0, 3).Draw(rt, "void") == 0, id})
			}
		}
		// A history of leaders: each epoch is led by one log, from which the others copy
		// some of what it has, as followers do.
		logs := make([]model, 3)
		for epoch := ident.Epoch(1); epoch <= 6; epoch++ {
			leader := &logs[rapid.IntRange(0, 2).Draw(rt, "leader")]
			grow(leader, epoch, "grows")
			for i := range logs {
				follower := &logs[i]
				if follower == leader || rapid.Bool().Draw(rt, "away") {
					continue
				}
				if err := converge(t, leader, follower, 0); err != nil {
					t.Fatal(err)
				}
				have := len(follower.batches)
				to := rapid.IntRange(have, len(leader.batches)).Draw(rt, "copies up to")
				follower.batches = append(follower.batches, leader.batches[have:to]...)
			}
		}
		leader, follower := logs[0], logs[1]
		shared := 0
		for shared < min(len(leader.batches), len(follower.batches)) && leader.batches[shared] == follower.batches[shared] {
			shared++
		}
		if err := converge(t, &leader, &follower, 0); err != nil {
			t.Fatal(err)
		}
		if !isPrefix(&leader, &follower) {
			t.Fatalf("they agree on different logs:\n%v\n%v", leader, follower)
		}
		if len(follower.batches) != shared {
			t.Fatalf("%d batches are left of %d that both had", len(follower.batches), shared)
		}
	})
}

func recordsOf(start ident.Offset, epochs ...ident.Epoch) *model {
	m := &model{start: start}
	for i, e := range epochs {
		m.batches = append(m.batches, modelBatch{e, false, int(e)*100 + i})
	}
	return m
}

func TestWhatIsCommittedIsNeverCut(t *testing.T) {
	leader, follower := recordsOf(0, 1, 1, 3), recordsOf(0, 1, 1, 2, 2)
	if err := converge(t, leader, follower, 3); !errors.Is(err, ErrCommitted) {
		t.Fatal(err)
	}
	if len(follower.batches) != 4 {
		t.Fatal("it was cut")
	}
	if err := converge(t, leader, follower, 2); err != nil || len(follower.batches) != 2 {
		t.Fatal(err, follower)
	}
}

// Rule C4: an election without an in-sync replica may undo what was committed before it.
func TestAnUncleanEpochMayUndo(t *testing.T) {
	leader, follower := recordsOf(0, 1, 1, 3), recordsOf(0, 1, 1, 2, 2)
	for unclean, want := range map[ident.Epoch]Step{0: Halt, 2: Halt, 3: Cut} {
		f := FollowView(View{Epoch: 99, Version: 1, Unclean: unclean})
		s := rpc.Standing{Epoch: 99, End: follower.end(), Last: follower.last()}
		d := Compare(&s, record.At(0), leader.end(), leader)
		if turn := f.Answer(&d, Log{End: follower.end(), Last: 2, HW: 4}, follower); turn.Step != want {
			t.Errorf("unclean epoch %d: step %d, not %d", unclean, turn.Step, want)
		}
	}
}

// What a log was begun with may be of records that an unclean election has undone, whatever
// the log itself is.
func TestWhatWasBegunWithLostRecordsIsDropped(t *testing.T) {
	for _, agreed := range []bool{true, false} {
		f := FollowView(View{Epoch: 4, Version: 1, Unclean: 4})
		own := Log{Start: record.At(3), End: record.At(5), Last: 2, HW: 3, Ahead: true}
		d := rpc.Divergence{Epoch: 4, Agreed: agreed, Of: own.End, OfLast: own.Last, Last: 2, End: record.At(4)}
		if turn := f.Answer(&d, own, recordsOf(3, 2, 2)); turn.Step != Empty || turn.To != record.At(0) || f.Agreed() {
			t.Errorf("agreed %v: %+v", agreed, turn)
		}
	}
}

// A log that begins behind where the new leader's ends has nothing that could be compared.
func TestWhatBeginsBehindAnUncleanLeadersEndIsDropped(t *testing.T) {
	follower := recordsOf(7, 2, 2)
	for unclean, want := range map[ident.Epoch]Step{0: Halt, 2: Halt, 3: Empty} {
		for _, x := range []struct {
			leader *model
			end    record.Position
		}{
			{recordsOf(0, 1, 2, 3), follower.end()},  // it has that epoch, and less of it
			{recordsOf(0, 1, 1, 3), record.At(7)},    // it has not, and nothing is left to cut
			{recordsOf(0, 3, 3, 3, 3), record.At(7)}, // not even an older one
		} {
			f := FollowView(View{Epoch: 99, Version: 1, Unclean: unclean})
			s := rpc.Standing{Epoch: 99, End: x.end, Last: 2}
			d := Compare(&s, record.At(0), x.leader.end(), x.leader)
			turn := f.Answer(&d, Log{Start: record.At(7), End: x.end, Last: 2, HW: x.end.Offset}, follower)
			step := want
			if BeginsAnew(&d) && want == Empty {
				step = Anew
			}
			if turn.Step != step || turn.To != record.At(0) && turn.Step != Halt {
				t.Errorf("unclean epoch %d, leader to %v, end %v: %+v, not step %d", unclean, x.leader.end(), x.end, turn, step)
			}
		}
	}
}

func TestWhoLiesBehindTheLeadersStartBeginsAnew(t *testing.T) {
	for _, tt := range []struct {
		name             string
		leader, follower *model
		begins           ident.Offset
	}{
		{"empty", recordsOf(5, 3, 3), &model{}, 5},
		{"shorter", recordsOf(5, 3, 3), recordsOf(0, 1, 1), 5},
		{"of older epochs alone", recordsOf(2, 3, 3), recordsOf(0, 1, 1, 2, 2), 2},
		{"nothing is missing", recordsOf(2, 1, 3), recordsOf(0, 1, 1, 1, 2), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := converge(t, tt.leader, tt.follower, 0); err != nil {
				t.Fatal(err)
			}
			if tt.follower.start != tt.begins {
				t.Fatalf("begins at %d, not %d", tt.follower.start, tt.begins)
			}
		})
	}
}

func TestWhichPushesAreTaken(t *testing.T) {
	own := Log{End: record.At(5), Last: 3, HW: 4}
	f := FollowView(View{Epoch: 4, Version: 1})
	push := rpc.Push{Epoch: 4, Prev: record.At(5), PrevEpoch: 3, HW: 9, Start: 2}
	if f.Push(&push, own) != Stale {
		t.Fatal("a push is taken before both agree")
	}
	if turn := f.Answer(&rpc.Divergence{Epoch: 3, Agreed: true, Of: own.End, OfLast: own.Last}, own, nil); turn.Step != Ignore || f.Agreed() {
		t.Fatal("the answer of a leader of the past is believed")
	}
	f.Answer(&rpc.Divergence{Epoch: 4, Agreed: true, Of: own.End, OfLast: own.Last}, own, nil)
	if f.Push(&push, own) != Next || f.LeaderStart() != 2 {
		t.Fatal("the next push is not taken")
	}
	if hw := f.HW(4, 9, 7); hw != 7 {
		t.Fatal("a follower's high watermark is above its end:", hw)
	}
	if hw := f.HW(4, 3, 7); hw != 4 {
		t.Fatal("a high watermark goes back:", hw)
	}
	for name, change := range map[string]func(*rpc.Push){
		"an older epoch":       func(p *rpc.Push) { p.Epoch = 3 },
		"a newer epoch":        func(p *rpc.Push) { p.Epoch = 5 },
		"a gap":                func(p *rpc.Push) { p.Prev = record.At(6) },
		"what is held already": func(p *rpc.Push) { p.Prev = record.At(4) },
		"other voids":          func(p *rpc.Push) { p.Prev.Voids = 1 },
		"another epoch before": func(p *rpc.Push) { p.PrevEpoch = 2 },
	} {
		f.Answer(&rpc.Divergence{Epoch: 4, Agreed: true, Of: own.End, OfLast: own.Last}, own, nil)
		odd := push
		change(&odd)
		if got := f.Push(&odd, own); got == Next {
			t.Errorf("%s is taken", name)
		} else if fmt.Sprint(got == Astray) != fmt.Sprint(odd.Epoch == 4) || f.Agreed() == (got == Astray) {
			t.Errorf("%s: verdict %d, agreed %v", name, got, f.Agreed())
		}
	}
}
