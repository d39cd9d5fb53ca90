package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

func batch() record.Batch {
	var b record.Builder
	b.Add(&record.Record{ContentType: "text/plain", Value: []byte("x")})
	return b.Seal()
}

func TestABatchGoesToTheLeaderInTheEpochItWasRoutedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.run(t, true)
		for i, c := range []struct {
			leader ident.NodeID
			want   fault.Kind // 0: kept
		}{{here, 0}, {a, 0}, {b, fault.LeaderUnavailable}, {ident.NodeID{}, fault.LeaderUnavailable}} {
			w.nodes[b].gone.Store(true)
			epoch := ident.Epoch(i + 3)
			w.lead(c.leader, epoch, here, a)
			answers := 0
			r.Append(rpc.Append{Partition: w.ref, Batch: batch()}, func(got rpc.Appended) {
				answers++
				if c.want != 0 && !fault.Is(got.Err, c.want) || c.want == 0 && (got.Err != nil || w.nodes[c.leader].epoch.Load() != uint32(epoch)) {
					t.Errorf("leader %d: %v", i, got.Err)
				}
			})
			if answers != 1 {
				t.Errorf("leader %d: %d answers", i, answers)
			}
		}
	})
}

// A replica of this node gives what it has. What it has not the leader is asked
// for, where somebody wants to know; and whether it has become another log.
func TestAReplicaOfThisNodeIsReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lead(a, 1, a, here)
		r := w.run(t, true)
		w.keep("k", a, here)
		w.keep("k", a, here)
		w.keep("k", a) // the follower does not know yet that this one is committed
		mine, other := w.nodes[here], w.nodes[a]

		read := func(what string, tail bool, from ident.Offset, batches bool, calls int64) rpc.ReadResult {
			t.Helper()
			before, f := other.calls.Load(), r.Read
			if tail {
				f = r.Tail
			}
			res, err := f(t.Context(), rpc.Read{Partition: w.ref, Offset: from, MaxBytes: 1})
			if err != nil || (len(res.Batches) > 0) != batches || other.calls.Load()-before != calls {
				t.Errorf("%s: %d bytes, %v, %d calls of the leader", what, len(res.Batches), err, other.calls.Load()-before)
			}
			return res
		}
		read("what the follower has", false, 0, true, 0)
		if res := read("the last that it has, for a poll", false, 1, true, 1); res.Bounds.HW != 3 {
			t.Errorf("a poll ends at %d", res.Bounds.HW)
		}
		read("the last that it has, for a feed", true, 1, true, 0)
		read("its end, for a poll", false, 2, true, 1)
		read("its end, for a feed", true, 2, false, 0)
		read("above its end", true, 3, false, 1)
		other.gone.Store(true)
		read("the last that it has, where the leader is gone", false, 1, true, 0)
		other.gone.Store(false)
		if got, err := r.Bounds(t.Context(), w.ref); err != nil || got.HW != 3 {
			t.Errorf("bounds are the leader's: %+v, %v", got, err)
		}
		mine.Serve(w.ref, false)
		read("a follower that does not serve", true, 0, true, 1)
		mine.Serve(w.ref, true)
		other.Elect(w.ref, 2) // the follower has yet to hear of the new epoch
		w.lead(a, 2, a, here)
		if res := read("a follower of an older epoch", true, 0, true, 1); res.Bounds.Epoch != 2 {
			t.Errorf("epoch %d", res.Bounds.Epoch)
		}
		w.lead(a, 2, a)
		read("a replica that is not in sync", true, 0, true, 1)
	})
}

// A node that leads by the snapshot and has yet to act on it knows as much as a
// follower does: where the partition ends it cannot say, nor where an epoch did.
func TestALeaderThatHasYetToBegin(t *testing.T) {
	for name, leader := range map[string]ident.NodeID{"this node": here, "another one": b} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.lead(a, 1, a, b, here)
				r := w.run(t, true)
				w.keep("k", a, b, here)
				w.keep("k", a) // readers have seen it; the others hold it, and do not know that it is committed
				w.lead(leader, 2, b, here)
				ask := func() []error {
					_, bounds := r.Bounds(t.Context(), w.ref)
					_, end := r.EpochEnd(t.Context(), w.ref, 1)
					_, at := r.OffsetAt(t.Context(), w.ref, 0)
					return []error{bounds, end, at}
				}
				for i, err := range ask() {
					if !fault.Is(err, fault.LeaderUnavailable) || fault.Lasting(err) {
						t.Errorf("call %d: %v", i, err)
					}
				}
				w.keep("k", leader)
				w.nodes[leader].Elect(w.ref, memlog.All)
				for i, err := range ask() {
					if err != nil {
						t.Errorf("call %d of one that leads: %v", i, err)
					}
				}
				if b, err := r.Bounds(t.Context(), w.ref); err != nil || b.HW != 2 || b.Epoch != 2 {
					t.Errorf("%+v, %v", b, err)
				}
			})
		})
	}
}

// Everybody who waits at one place waits for one call, and what it brought is
// there for all of them.
func TestWhoWaitsAtOnePlaceIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lead(a, 1, a)
		r := w.run(t, false)
		leader := w.nodes[a]
		var waits []<-chan struct{}
		for range 100 {
			more, err := r.Wait(w.ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, more)
		}
		synctest.Wait()
		began := time.Now()
		w.keep("k", a)
		for _, more := range waits {
			<-more
			res, err := r.Tail(t.Context(), rpc.Read{Partition: w.ref, MaxBytes: 1 << 20})
			if err != nil || len(res.Batches) == 0 {
				t.Fatal(res, err)
			}
		}
		if res, err := r.Tail(t.Context(), rpc.Read{Partition: w.ref, Offset: 1, MaxBytes: 1 << 20}); err != nil || len(res.Batches) > 0 {
			t.Error("behind it there is nothing:", res, err)
		}
		if n := leader.calls.Load(); n != 1 || time.Since(began) > 0 {
			t.Errorf("%d calls, %s", n, time.Since(began))
		}
		// A poll wants the leader's own word that there is nothing.
		if res, err := r.Read(t.Context(), rpc.Read{Partition: w.ref, Offset: 1, MaxBytes: 1 << 20}); err != nil || len(res.Batches) > 0 || leader.calls.Load() != 2 {
			t.Error(res, err, leader.calls.Load())
		}
	})
}

// A wait ends when the leader has moved, though the old one keeps silent; with
// the router; and by itself, so that nobody is watched for who has gone.
func TestAWaitEnds(t *testing.T) {
	ends := func(t *testing.T, end func(w *world), least, most time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.lead(a, 1, a)
			r := w.run(t, false)
			began := time.Now()
			more, err := r.Wait(w.ref, 7) // also ahead of the log
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			end(w)
			<-more
			if took := time.Since(began); took < least || took > most {
				t.Errorf("took %s", took)
			}
		})
	}
	t.Run("the leader moved", func(t *testing.T) { ends(t, func(w *world) { w.lead(b, 2, b) }, 0, 0) })
	t.Run("by itself", func(t *testing.T) { ends(t, func(*world) {}, 5*time.Second, 5*time.Second) })
	t.Run("a silent leader moved", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.lead(a, 1, a)
			w.nodes[a].silent.Store(true)
			r := w.run(t, false)
			more, err := r.Wait(w.ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			began := time.Now()
			w.lead(b, 2, b)
			<-more
			if time.Since(began) > 0 {
				t.Error("late")
			}
			if _, err := r.Tail(t.Context(), rpc.Read{Partition: w.ref, MaxBytes: 1}); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("the leader refuses", func(t *testing.T) {
		ends(t, func(w *world) { w.nodes[a].gone.Store(true); w.nodes[a].Serve(w.ref, false) }, 20*time.Millisecond, 6*time.Second)
	})
}

// However many places are waited at, the calls at a node are bounded; places beyond
// that are looked at now and then.
func TestCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lead(a, 1, a)
		r := w.run(t, false)
		const n = 3000
		var waits []<-chan struct{}
		for i := range n {
			more, err := r.Wait(w.ref, ident.Offset(i))
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, more)
		}
		synctest.Wait()
		if calls := w.nodes[a].calls.Load(); calls > 2*2048 { // ahead of the log a call is followed by another
			t.Errorf("%d calls wait", calls)
		}
		time.Sleep(time.Second)
		ended := 0
		for _, more := range waits {
			select {
			case <-more:
				ended++
			default:
			}
		}
		if ended != n-2048 {
			t.Errorf("%d waits ended early", ended)
		}
		for _, more := range waits {
			<-more
		}
	})
}

func TestACallToASilentLeaderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lead(a, 1, a)
		w.nodes[a].silent.Store(true)
		r := w.run(t, false)
		began := time.Now()
		_, err := r.Bounds(t.Context(), w.ref)
		if !fault.Is(err, fault.LeaderUnavailable) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
