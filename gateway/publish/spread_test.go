package publish

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// scattered publishes a record that names no place, and gives where it was kept once
// there is an answer.
func scattered(p *Publisher, value string, where *[]ident.Index) {
	p.Publish(Request{Topic: "orders", Acks: rpc.AcksAll, Record: text(value)}, func(r Result) {
		if r.Err == nil {
			*where = append(*where, r.Partition)
		}
	})
}

func TestWhatComesAloneTakesTurns(t *testing.T) {
	p := New(Config{Topology: orders(), Leader: newLeader()})
	var where []ident.Index
	for i := range 6 {
		scattered(p, fmt.Sprint(i), &where)
	}
	if want := []ident.Index{0, 1, 0, 1, 0, 1}; !slices.Equal(where, want) {
		t.Errorf("kept in %v, not %v", where, want)
	}
}

func TestWhatComesMeanwhileIsOneBatch(t *testing.T) {
	l := newLeader()
	l.set(nil, true)
	p := New(Config{Topology: orders(), Leader: l})
	var where []ident.Index
	for i := range 5 {
		scattered(p, fmt.Sprint(i), &where)
	}
	l.release() // of the first; the others are the next batch
	scattered(p, "5", &where)
	l.set(nil, false)
	l.release()
	if want := "[[0] [1 2 3 4] [5]]"; fmt.Sprint(l.batches) != want {
		t.Errorf("batches %v, not %s", l.batches, want)
	}
	slices.Sort(where)
	if want := []ident.Index{0, 0, 0, 0, 0, 1}; !slices.Equal(where, want) {
		t.Errorf("kept in %v, not %v", where, want)
	}
}

// A leader that does not answer has a moment's records and its turns, not all of them.
func TestASilentLeaderDoesNotGatherAllThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent, kept, late atomic.Int64 // answers come from timers as well
		p := New(Config{Topology: orders(), Leader: appender(func(req rpc.Append, done func(rpc.Appended)) {
			if req.Partition.Index == 0 {
				silent.Add(1)
				return
			}
			done(rpc.Appended{Records: make([]rpc.RecordResult, 1)})
		})})
		for range 20 {
			p.Publish(Request{Topic: "orders", Acks: rpc.AcksAll, Timeout: time.Second, Record: text("x")}, func(r Result) {
				switch {
				case r.Err == nil && r.Partition == 1:
					kept.Add(1)
				case fault.Is(r.Err, fault.UnknownOutcome), fault.Is(r.Err, fault.LeaderUnavailable):
					late.Add(1)
				default:
					t.Errorf("%+v", r)
				}
			})
			time.Sleep(stayTime / 2)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if silent.Load() == 0 || kept.Load() < 8 || kept.Load()+late.Load() != 20 {
			t.Errorf("%d records were kept, %d were not", kept.Load(), late.Load())
		}
	})
}

// However many come at once, no partition has more of them than a stay and what a batch
// before it had.
func TestAMultitudeGoesToAll(t *testing.T) {
	l := newLeader()
	l.set(nil, true)
	p := New(Config{Topology: orders(), Leader: l})
	var where []ident.Index
	const n = 10 * stayRecords
	for i := range n {
		scattered(p, fmt.Sprint(i), &where)
	}
	l.set(nil, false)
	l.release()
	count := map[ident.Index]int{}
	for _, i := range where {
		count[i]++
	}
	if len(where) != n || count[0] < n/2-stayRecords || count[1] < n/2-stayRecords {
		t.Errorf("of %d records these were kept: %v", n, count)
	}
}

type appender func(rpc.Append, func(rpc.Appended))

func (f appender) Append(req rpc.Append, done func(rpc.Appended)) { f(req, done) }
