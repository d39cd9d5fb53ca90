package groups_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/groups"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
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

// A client that goes away before it is answered has nothing: what it would have had is there
// for others at once, and was no delivery.
func TestWhatWentToNobodyIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.Lead(w.topic.Ref(1), far)
		w.keep(0, 2)
		w.keep(1, 1)
		w.register(`,"mode":"shared"`)
		gone, other := w.join("gone"), w.join("other")
		got, err := w.groups.Messages(t.Context(), groups.Fetch{Caller: caller(gone), Limit: 100, MaxBytes: 1 << 20})
		if err != nil || len(got.Lines) != 3 {
			t.Fatal(places(got.Lines), err)
		}
		got.GiveBack()
		time.Sleep(100 * time.Millisecond)
		if n := w.Unheard(); n != 0 {
			t.Errorf("%d records are leased to nobody", n)
		}
		var all []string
		for range 3 {
			one, err := w.fetch(other, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		slices.Sort(all)
		if !slices.Equal(all, []string{"0:0:1", "0:1:1", "1:0:1"}) {
			t.Errorf("%q", all)
		}
	})
}

// What a leader was told to have come is a client's, whoever says otherwise later.
func TestWhatCameIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 2)
		w.register(`,"mode":"shared"`)
		m, other := w.join("a"), w.join("b")
		got, err := w.groups.Messages(t.Context(), groups.Fetch{Caller: caller(m), Limit: 1, MaxBytes: 1 << 20})
		if err != nil || places(got.Lines) != "0:0:1" {
			t.Fatal(places(got.Lines), err)
		}
		w.want("0:1:1", m, 1, 0) // which says that the first one came
		got.GiveBack()
		time.Sleep(100 * time.Millisecond)
		w.want("", other, 100, 0)
	})
}

// A connection that ends while records are on the way to it gives them back.
func TestADeliveryThatIsNotTakenIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.register(`,"mode":"shared"`)
		m, other := w.join("a"), w.join("b")
		a := w.deliver(m, 100)
		a.heard()
		a.mu.Lock()
		a.over = true
		a.mu.Unlock()
		w.keep(0, 1)
		if got := a.heard(); got != "0:0:1" {
			t.Fatal(got)
		}
		w.want("0:0:1", other, 100, 10*time.Second) // the member's next wait says so
	})
}

// What came and cannot be read goes back, and whoever asked hears why nothing came. Other
// partitions go on.
func TestWhatCannotBeReadIsGivenBackAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.keep(0, 2)
		w.register("")
		m := w.join("")
		w.garble = func(taken *rpc.Taken) {
			for i := range taken.Of {
				if b := taken.Of[i].Batches; taken.Of[i].Partition.Index == 0 && len(b) > 0 {
					taken.Of[i].Batches = b[:len(b)-1]
				}
			}
		}
		for _, wait := range []time.Duration{0, time.Second} {
			began := time.Now()
			if got, err := w.fetch(m, 100, wait); !fault.Is(err, fault.Internal) || time.Since(began) > wait+100*time.Millisecond {
				t.Errorf("%q, %v after %s", got, err, time.Since(began))
			}
			if n := w.Calls("take"); n > 40 {
				t.Errorf("%d takes of what cannot be read, %d waits", n, w.Calls("wait"))
			}
		}
		w.keep(1, 1)
		w.want("1:0:1", m, 100, time.Second)
		w.garble = nil
		w.want("0:0:1 0:1:1", m, 100, time.Second)
	})
}

// So does whoever asks for what its leader cannot read.
func TestWhatALeaderCannotReadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.keep(0, 2)
		w.register("")
		m := w.join("")
		w.log.Spoil(w.topic.Ref(0), 1)
		w.want("0:0:1", m, 100, time.Second)
		if got, err := w.fetch(m, 100, time.Second); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("%q, %v", got, err)
		}
		w.keep(1, 1)
		w.want("1:0:1", m, 100, time.Second)
	})
}
