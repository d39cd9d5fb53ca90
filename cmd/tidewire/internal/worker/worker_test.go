package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/worker"
)

// queue is a group of one partition in memory, with one member at a time.
type queue struct {
	mu      sync.Mutex
	waiting []client.Leased
	leased  map[int64]client.Leased
	until   map[int64]time.Time
	acked   []int64
	dead    []int64
	holds   [][]uint32 // of each heartbeat
	epoch   uint64
	left    bool
	owns    []uint32
	revoke  []uint32
	fail    map[string][]error // by call: its next answers
}

const lease = 3 * time.Second

func newQueue(n int) *queue {
	q := &queue{leased: map[int64]client.Leased{}, until: map[int64]time.Time{}, fail: map[string][]error{}, owns: []uint32{0}}
	for i := range n {
		key := fmt.Sprint("k", i%2)
		m := client.Leased{Message: client.Message{Offset: int64(i)}, Key: &key, LeaseMS: lease.Milliseconds()}
		q.waiting = append(q.waiting, m)
	}
	return q
}

var errFenced = &client.Problem{Code: "fenced", Status: 409}

func (q *queue) next(call string, epoch uint64) error {
	if all := q.fail[call]; len(all) > 0 {
		q.fail[call] = all[1:]
		if all[0] != nil {
			return all[0]
		}
	}
	if epoch != q.epoch {
		return errFenced
	}
	return nil
}

func (q *queue) Join(_ context.Context, _, _, member string) (client.Joined, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.next("join", q.epoch); err != nil {
		return client.Joined{}, err
	}
	q.epoch++
	q.back(func(int64) bool { return true })
	if member == "" {
		member = "named"
	}
	return client.Joined{Member: member, Epoch: q.epoch, Heartbeat: "1s", Session: "3s", Partitions: q.owns}, nil
}

// back makes leased messages wait again, in their order.
func (q *queue) back(which func(int64) bool) {
	for o, m := range q.leased {
		if which(o) {
			delete(q.leased, o)
			q.waiting = append(q.waiting, m)
		}
	}
	slices.SortFunc(q.waiting, func(a, b client.Leased) int { return int(a.Offset - b.Offset) })
}

func (q *queue) Heartbeat(_ context.Context, _, _ string, j client.Joined, holds []uint32) (client.Held, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holds = append(q.holds, slices.Clone(holds))
	return client.Held{Epoch: j.Epoch, Partitions: q.owns, Revoke: q.revoke}, q.next("heartbeat", j.Epoch)
}

func (q *queue) Leave(_ context.Context, _, _ string, j client.Joined) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left = true
	return q.next("leave", j.Epoch)
}

func (q *queue) Take(ctx context.Context, _, _ string, j client.Joined, limit int, wait time.Duration) ([]client.Leased, error) {
	for end := time.Now().Add(wait); ; {
		q.mu.Lock()
		err := q.next("take", j.Epoch)
		q.back(func(o int64) bool { return !time.Now().Before(q.until[o]) })
		n := min(limit, len(q.waiting))
		out := slices.Clone(q.waiting[:n])
		if err == nil {
			for i := range out {
				out[i].Delivery++
				q.leased[out[i].Offset], q.until[out[i].Offset] = out[i], time.Now().Add(lease)
			}
			q.waiting = q.waiting[n:]
			err = q.next("answer", j.Epoch) // which may be lost
		}
		q.mu.Unlock()
		if err != nil || n > 0 || !time.Now().Before(end) {
			return out, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *queue) Settle(_ context.Context, _, _ string, s client.Settlement) (stale []client.Stale, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.next("settle", s.Epoch); err != nil {
		return nil, err
	}
	each := func(p client.Place, do func()) {
		if _, has := q.leased[p.Offset]; !has || !time.Now().Before(q.until[p.Offset]) {
			stale = append(stale, client.Stale{Place: p, Reason: "fenced"})
			return
		}
		do()
	}
	for _, p := range s.Ack {
		each(p, func() { q.acked = append(q.acked, p.Offset); delete(q.leased, p.Offset) })
	}
	for _, p := range s.Nack {
		each(p, func() { q.back(func(o int64) bool { return o == p.Offset }) })
	}
	for _, p := range s.Extend {
		each(p, func() { q.until[p.Offset] = time.Now().Add(lease) })
	}
	for _, p := range s.Reject {
		each(p.Place, func() { q.dead = append(q.dead, p.Offset); delete(q.leased, p.Offset) })
	}
	return stale, nil
}

func play(t *testing.T, q *queue, cfg worker.Config) (*worker.Worker, error) {
	t.Helper()
	cfg.Server, cfg.Topic, cfg.Group, cfg.Note = q, "t", "g", t.Logf
	cfg.Parallel = max(cfg.Parallel, 1)
	w := worker.New(cfg)
	return w, w.Run(t.Context())
}

func ascending(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i))
	}
	return all
}

func TestAWorkerDoesAllThereIsAndLeaves(t *testing.T) {
	for _, parallel := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(20)
			var mu sync.Mutex
			last := map[string]int64{}
			w, err := play(t, q, worker.Config{Parallel: parallel, Idle: time.Minute, Do: func(_ context.Context, m client.Leased) error {
				time.Sleep(time.Duration(m.Offset%3) * time.Second)
				mu.Lock()
				defer mu.Unlock()
				if before, ok := last[*m.Key]; ok && before > m.Offset {
					t.Errorf("%d after %d of the same key", m.Offset, before)
				}
				last[*m.Key] = m.Offset
				return nil
			}})
			slices.Sort(q.acked)
			if err != nil || w.Done() != 20 || !slices.Equal(q.acked, ascending(20)) || !q.left {
				t.Errorf("%d done, acknowledged %v, left %v: %v", w.Done(), q.acked, q.left, err)
			}
		})
	}
}

func TestWhatFailsComesAgainAndWhatIsRejectedDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		w, err := play(t, q, worker.Config{Idle: time.Minute, Do: func(_ context.Context, m client.Leased) error {
			switch {
			case m.Offset == 1 && m.Delivery < 3:
				return errors.New("not yet")
			case m.Offset == 2:
				return &worker.Rejection{Reason: "never"}
			}
			return nil
		}})
		slices.Sort(q.acked)
		if err != nil || w.Done() != 3 || !slices.Equal(q.acked, []int64{0, 1, 3}) || !slices.Equal(q.dead, []int64{2}) {
			t.Errorf("%d done, acknowledged %v, rejected %v: %v", w.Done(), q.acked, q.dead, err)
		}
	})
}

func TestALongWorkKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		calls := 0
		_, err := play(t, q, worker.Config{Limit: 1, Do: func(ctx context.Context, _ client.Leased) error {
			calls++
			select {
			case <-time.After(5 * lease):
			case <-ctx.Done():
			}
			return ctx.Err()
		}})
		if err != nil || calls != 1 || len(q.acked) != 1 {
			t.Errorf("worked %d times, acknowledged %v: %v", calls, q.acked, err)
		}
	})
}

func TestAWorkWithoutALeaseIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		gone := &client.Unreachable{Server: "x", Err: errors.New("refused")}
		q.fail["settle"] = []error{gone, gone, gone, gone}
		stopped := 0
		w, err := play(t, q, worker.Config{Limit: 1, Do: func(ctx context.Context, m client.Leased) error {
			if m.Delivery > 1 {
				return nil
			}
			<-ctx.Done()
			stopped++
			return ctx.Err()
		}})
		if err != nil || stopped != 1 || w.Done() != 1 {
			t.Errorf("stopped %d times, %d done: %v", stopped, w.Done(), err)
		}
	})
}

func TestAFencedMemberJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(6)
		q.fail["take"] = []error{nil, nil, errFenced}
		q.fail["join"] = []error{nil, &client.Unreachable{Server: "x", Err: errors.New("refused")}}
		w, err := play(t, q, worker.Config{Limit: 6, Do: func(context.Context, client.Leased) error { return nil }})
		if err != nil || w.Done() != 6 || q.epoch != 2 {
			t.Errorf("%d done in epoch %d: %v", w.Done(), q.epoch, err)
		}
	})
}

// What was leased in an answer that did not come is in nobody's hands: what follows it
// waits for it.
func TestWhatWasLeasedInALostAnswerComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(6)
		q.fail["answer"] = []error{nil, nil, &client.Unreachable{Server: "x", Err: errors.New("connection reset")}}
		var worked []int64
		began := time.Now()
		_, err := play(t, q, worker.Config{Limit: 6, Do: func(_ context.Context, m client.Leased) error {
			worked = append(worked, m.Offset)
			if len(worked) < 6 && q.left {
				t.Error("it left, and its partitions moved")
			}
			return nil
		}})
		if err != nil || !slices.Equal(worked, ascending(6)) || q.epoch != 2 || time.Since(began) >= lease {
			t.Errorf("worked on %d in epoch %d, after %s: %v", worked, q.epoch, time.Since(began), err)
		}
	})
}

func TestAHeartbeatThatIsFencedEndsTheLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(0)
		q.fail["heartbeat"] = []error{nil, errFenced}
		_, err := play(t, q, worker.Config{Idle: 10 * time.Second, Do: func(context.Context, client.Leased) error { return nil }})
		if err != nil || q.epoch != 2 {
			t.Errorf("epoch %d: %v", q.epoch, err)
		}
	})
}

func TestARevokedPartitionIsHeldUntilItsMessagesAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		_, err := play(t, q, worker.Config{Idle: 10 * time.Second, Do: func(context.Context, client.Leased) error {
			time.Sleep(1500 * time.Millisecond)
			q.mu.Lock()
			q.owns, q.revoke = []uint32{1}, []uint32{0}
			q.mu.Unlock()
			time.Sleep(2 * time.Second)
			return nil
		}})
		var held []string
		for _, h := range q.holds {
			held = append(held, fmt.Sprint(h))
		}
		held = slices.Compact(held)
		if want := []string{"[0]", "[1 0]", "[1]"}; err != nil || !slices.Equal(held, want) {
			t.Errorf("held %v, want %v: %v", held, want, err)
		}
	})
}

func TestAPageIsAcknowledgedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var seen []int64
		w, err := play(t, q, worker.Config{Parallel: 4, Limit: 9, Each: func(m client.Leased) error {
			seen = append(seen, m.Offset)
			return nil
		}})
		if err != nil || w.Done() != 9 || !slices.Equal(seen, ascending(9)) || !slices.Equal(q.acked, seen) {
			t.Errorf("%d done, saw %v, acknowledged %v: %v", w.Done(), seen, q.acked, err)
		}
		full := errors.New("no space left")
		if _, err := play(t, q, worker.Config{Parallel: 4, Each: func(client.Leased) error { return full }}); !errors.Is(err, full) {
			t.Error(err)
		}
		if len(q.acked) != 9 {
			t.Errorf("acknowledged what was not printed: %v", q.acked)
		}
	})
}

func TestARefusalThatStaysEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		none := &client.Problem{Code: "group-not-found", Status: 404}
		q.fail["join"] = []error{none}
		if _, err := play(t, q, worker.Config{}); !errors.Is(err, none) {
			t.Error(err)
		}
		q.fail["take"] = []error{none}
		if _, err := play(t, q, worker.Config{}); !errors.Is(err, none) {
			t.Error(err)
		}
	})
}

func TestWhoIsAskedToStopFinishesWhatIsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(5)
		ctx, cancel := context.WithCancel(t.Context())
		w := worker.New(worker.Config{Server: q, Topic: "t", Group: "g", Parallel: 1, Note: t.Logf, Do: func(ctx context.Context, m client.Leased) error {
			if m.Offset == 2 {
				cancel()
				time.Sleep(time.Second)
			}
			return ctx.Err()
		}})
		if err := w.Run(ctx); err != nil || w.Done() != 3 || len(q.acked) != 3 || !q.left {
			t.Errorf("%d done, acknowledged %v, left %v: %v", w.Done(), q.acked, q.left, err)
		}
	})
}
