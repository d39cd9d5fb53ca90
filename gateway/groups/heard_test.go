package groups_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// loses has the answers of the next takes at a node lost.
func (w *world) loses(node ident.NodeID, answers int) {
	w.Fail(node, func(call string) error {
		if call != "taken" || answers == 0 {
			return nil
		}
		answers--
		return fault.New(fault.LeaderUnavailable, "the connection broke")
	})
}

// What was leased in an answer that was lost between gateway and leader comes with the next one,
// before anything else, and was no delivery.
func TestALostAnswerIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 3)
		w.register("")
		m := w.join("")
		w.loses(here, 2)
		w.want("0:0:1 0:1:1 0:2:1", m, 100, 10*time.Second)
		w.keep(0, 1)
		w.want("0:3:1", m, 100, 0)
	})
}

// Whoever asks at another gateway is not served while this one knows that an answer was lost
// and the leader does not: it is told, also where the member takes nothing here any more.
func TestALeaderHearsOfAnAnswerThatWasLostLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 2)
		w.register("")
		m := w.join("")
		w.loses(here, 1<<30)
		if got, err := w.fetch(m, 100, 30*time.Millisecond); err == nil && got != "" {
			t.Fatal(got)
		}
		w.Fail(here, nil)
		if n := w.Unheard(); n != 2 {
			t.Fatalf("%d records in an answer that was lost", n)
		}
		time.Sleep(300 * time.Millisecond)
		if n := w.Unheard(); n != 0 {
			t.Fatalf("%d records are leased to nobody", n)
		}
		w.want("0:0:1 0:1:1", m, 100, 0)
		time.Sleep(100 * time.Millisecond)
		if n := w.Unheard(); n != 0 {
			t.Fatalf("of %d records the leader does not know that they came", n)
		}
	})
}
