package consensus

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// wire is what a herald sends, as it leaves; each takes a moment.
type wire struct {
	mu   sync.Mutex
	sent []string
	lost bool
}

func (w *wire) send(id raft.ServerID, at raft.ServerAddress, args *raft.AppendEntriesRequest) bool {
	time.Sleep(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, fmt.Sprintf("%s@%s term %d: %d is committed, behind %d of term %d", id, at, args.Term, args.LeaderCommitIndex, args.PrevLogEntry, args.PrevLogTerm))
	return !w.lost
}

// told waits until all is quiet, and wants to see what was sent since the last time.
func (w *wire) told(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.sent)
	if !slices.Equal(w.sent, want) {
		t.Errorf("sent %q, want %q", w.sent, want)
	}
	w.sent = nil
}

// entries are a request of raft's, with entries behind one.
func entries(term uint64, behind, last uint64, committed uint64) *raft.AppendEntriesRequest {
	a := &raft.AppendEntriesRequest{Term: term, PrevLogEntry: behind, PrevLogTerm: term, LeaderCommitIndex: committed}
	for i := behind + 1; i <= last; i++ {
		a.Entries = append(a.Entries, &raft.Log{Index: i, Term: term})
	}
	return a
}

func TestWhoHasKeptAnEntryHearsAtOnceThatItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		h := newHerald(w.send)
		defer h.close()
		yes, no := &raft.AppendEntriesResponse{Success: true}, &raft.AppendEntriesResponse{}
		first := entries(3, 4, 7, 4)
		for _, id := range []raft.ServerID{"b", "c"} {
			h.sent(id, "there", first)
		}
		h.answered("b", first, yes)
		w.told(t) // nothing of it is committed yet
		h.announce(7)
		w.told(t, "b@there term 3: 7 is committed, behind 7 of term 3")
		h.answered("c", first, no)
		w.told(t)
		h.answered("c", first, yes) // at last
		w.told(t, "c@there term 3: 7 is committed, behind 7 of term 3")

		next := entries(3, 7, 9, 7) // raft's own say the same
		h.sent("b", "elsewhere", next)
		h.answered("b", next, yes)
		h.announce(7)
		w.told(t)
		h.announce(8)
		w.told(t, "b@elsewhere term 3: 8 is committed, behind 9 of term 3")
	})
}

func TestWhatIsCommittedMeanwhileIsToldInOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		h := newHerald(w.send)
		defer h.close()
		a := entries(1, 0, 20, 0)
		h.sent("b", "there", a)
		h.answered("b", a, &raft.AppendEntriesResponse{Success: true})
		for i := range uint64(9) {
			h.announce(i + 1)
		}
		w.told(t, "b@there term 1: 1 is committed, behind 20 of term 1", "b@there term 1: 9 is committed, behind 20 of term 1")
	})
}

// What is lost raft says again, some time later, and so does whatever comes next.
func TestWhatIsLostIsNotSaidOverAndOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{lost: true}
		h := newHerald(w.send)
		defer h.close()
		a := entries(1, 0, 5, 0)
		h.sent("b", "there", a)
		h.answered("b", a, &raft.AppendEntriesResponse{Success: true})
		h.announce(4)
		w.told(t, "b@there term 1: 4 is committed, behind 5 of term 1")
		h.announce(5)
		w.told(t, "b@there term 1: 5 is committed, behind 5 of term 1")
	})
}

// What a member kept in an earlier term may have been cut since.
func TestWhatWasKeptInAnEarlierTermDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		h := newHerald(w.send)
		defer h.close()
		yes := &raft.AppendEntriesResponse{Success: true}
		old, now := entries(1, 0, 5, 0), entries(2, 0, 6, 0)
		h.sent("b", "there", old)
		h.answered("b", old, yes)
		h.sent("b", "there", now)
		h.announce(5)
		h.answered("b", old, yes) // late
		w.told(t)
		h.answered("b", now, yes)
		w.told(t, "b@there term 2: 5 is committed, behind 6 of term 2")
	})
}

func TestAClosedHeraldSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		h := newHerald(w.send)
		a := entries(1, 0, 5, 0)
		h.sent("b", "there", a)
		h.answered("b", a, &raft.AppendEntriesResponse{Success: true})
		h.close()
		h.announce(5)
		w.told(t)
	})
}

// raft tells its followers of a command that nothing follows after 50 ms at the earliest.
// The quickest of several counts: the machine may be busy.
func TestFollowersApplyWhatIsAnnouncedAtOnce(t *testing.T) {
	g := three(t)
	leader := g.leader()
	quickest := map[*member]time.Duration{}
	for range 20 {
		if _, err := leader.Apply(t.Context(), Command{Bytes: []byte("say it")}); err != nil {
			if NotLeading(err) {
				leader = g.leader()
				continue
			}
			t.Fatal(err)
		}
		began := time.Now()
		index := leader.tape.at()
		leader.Announce(index)
		for _, m := range g.all {
			if m == leader {
				continue
			}
			eventually(t, 5*time.Second, "it is applied", func() bool { return m.tape.at() >= index })
			if took, ok := quickest[m]; !ok || time.Since(began) < took {
				quickest[m] = time.Since(began)
			}
		}
	}
	for m, took := range quickest {
		t.Logf("%s: %s", m.cfg.ID, took)
		if took > 25*time.Millisecond {
			t.Errorf("%s applies what is committed after %s", m.cfg.ID, took)
		}
	}
}

func (m *tape) at() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index
}
