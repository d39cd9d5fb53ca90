package turn_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidewire/gateway/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// crew works until the test ends.
func crew(t *testing.T) *turn.Crew {
	c := turn.NewCrew()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// player has turns, and does in them what it is told.
type player struct {
	slot  turn.Slot
	play  func(w *turn.Worker) turn.Outcome
	turns atomic.Int64
	busy  atomic.Bool
	twice atomic.Bool // had two turns at a time
}

func (p *player) Turn(w *turn.Worker) turn.Outcome {
	if p.busy.Swap(true) {
		p.twice.Store(true)
	}
	defer p.busy.Store(false)
	p.turns.Add(1)
	if p.play == nil {
		return turn.Rest
	}
	return p.play(w)
}

func join(c *turn.Crew, play func(w *turn.Worker) turn.Outcome) *player {
	p := &player{play: play}
	c.Join(&p.slot, p)
	p.slot.GiveBack(turn.Rest)
	return p
}

func TestWhatIsScheduledHasATurnAndWhatIsNotHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew(t)
		var all []*player
		for range 100 {
			all = append(all, join(c, nil))
		}
		idle := join(c, nil)
		for round := range int64(3) {
			for _, p := range all {
				p.slot.Schedule()
			}
			synctest.Wait()
			for i, p := range all {
				if n := p.turns.Load(); n != round+1 {
					t.Fatalf("number %d has had %d turns in %d rounds", i, n, round+1)
				}
			}
		}
		if n := idle.turns.Load(); n != 0 {
			t.Errorf("%d turns for nothing", n)
		}
	})
}

func TestWhatHappensDuringATurnBringsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew(t)
		var p *player
		p = join(c, func(*turn.Worker) turn.Outcome {
			if p.turns.Load() == 1 {
				p.slot.Schedule()
				p.slot.Schedule()
			}
			return turn.Rest
		})
		p.slot.Schedule()
		synctest.Wait()
		if n := p.turns.Load(); n != 2 {
			t.Errorf("%d turns", n)
		}
	})
}

func TestTheLogIsReadElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew(t)
		numbers := map[int]bool{}
		for i, w := range c.Workers() {
			if w.Number != i {
				t.Errorf("worker %d has the number %d", i, w.Number)
			}
			numbers[w.Number] = w.Logs
		}
		stuck := make(chan struct{})
		var at []int
		var slow *player
		slow = join(c, func(w *turn.Worker) turn.Outcome {
			at = append(at, w.Number)
			switch slow.turns.Load() {
			case 1:
				return turn.Behind
			case 2:
				<-stuck // the disk
				return turn.More
			}
			return turn.Rest
		})
		slow.slot.Schedule()
		synctest.Wait()
		// Others have their turns meanwhile, on every worker.
		var others []*player
		for range 100 {
			others = append(others, join(c, nil))
			others[len(others)-1].slot.Schedule()
		}
		synctest.Wait()
		for _, p := range others {
			if p.turns.Load() != 1 {
				t.Fatal("a turn waits for the disk of another")
			}
		}
		close(stuck)
		synctest.Wait()
		if len(at) != 3 || numbers[at[0]] || !numbers[at[1]] || at[2] != at[0] {
			t.Errorf("turns at %v; those of the log: %v", at, numbers)
		}
	})
}

func TestWhatSomebodyKeepsHasNoTurnUntilItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew(t)
		var p *player
		p = join(c, func(*turn.Worker) turn.Outcome {
			if p.turns.Load() == 1 {
				return turn.Kept
			}
			return turn.Rest
		})
		p.slot.Schedule()
		synctest.Wait()
		p.slot.Schedule()
		synctest.Wait()
		if n := p.turns.Load(); n != 1 {
			t.Fatalf("%d turns while it is kept", n)
		}
		p.slot.GiveBack(turn.Rest) // what was scheduled meanwhile counts
		synctest.Wait()
		if n := p.turns.Load(); n != 2 {
			t.Errorf("%d turns", n)
		}
	})
}

func TestAlarmsBringTurnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew(t)
		began := time.Now()
		var mu sync.Mutex
		woken := map[time.Duration]int{}
		note := func(*turn.Worker) turn.Outcome {
			mu.Lock()
			defer mu.Unlock()
			woken[time.Since(began)]++
			return turn.Rest
		}
		var all []*player
		for i := range 60 {
			p := join(c, note)
			all = append(all, p)
			p.slot.Alarm(began.Add(time.Duration(60-i%30) * time.Second))
		}
		all[0].slot.Alarm(began.Add(time.Hour)) // no later than it is
		all[1].slot.Alarm(began.Add(time.Second))
		left := join(c, note)
		left.slot.Alarm(began.Add(45 * time.Second))
		left.slot.Leave()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i := range 30 {
			at, want := time.Duration(60-i)*time.Second, 2
			if i == 1 {
				want = 1
			}
			if woken[at] != want {
				t.Errorf("%d turns at %v, want %d", woken[at], at, want)
			}
		}
		if woken[time.Second] != 1 || len(woken) != 31 {
			t.Errorf("%v", woken)
		}
	})
}

func TestASlotHasOneTurnAtATime(t *testing.T) {
	c := crew(t)
	var hot *player
	hot = join(c, func(*turn.Worker) turn.Outcome {
		switch hot.turns.Load() % 4 {
		case 0:
			return turn.More
		case 1:
			return turn.Behind
		}
		return turn.Rest
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				hot.slot.Schedule()
				hot.slot.Alarm(time.Now())
			}
		})
	}
	all.Wait()
	if hot.twice.Load() {
		t.Error("two turns at a time")
	}
}
