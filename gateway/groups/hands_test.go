package groups_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/groups"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// three is a member whose three partitions have a leader each, with records in all of them.
func three(t *testing.T, settings string) (*world, groups.Membership) {
	w := newWorld(t, 3)
	for i := range ident.Index(3) {
		w.keep(i, 8)
		w.Lead(w.topic.Ref(i), ident.NodeID{byte(i + 1)})
	}
	w.register(`,"max_in_flight":4` + settings)
	return w, w.join("")
}

func count(text string) int { return len(strings.Fields(text)) }

func (w *world) acks(m groups.Membership, places ...string) {
	w.t.Helper()
	var entries []wire.Entry
	for _, p := range places {
		entries = append(entries, wire.Entry{Verb: wire.Ack, Partition: ident.Index(p[0] - '0'), Offset: ident.Offset(p[2] - '0')})
	}
	if done, err := w.groups.Settle(w.t.Context(), caller(m), entries); err != nil || len(done.Stale) > 0 {
		w.t.Fatal(done, err)
	}
}

// However many leaders its partitions have, a member holds max_in_flight records.
func TestAMemberHoldsNoMoreOfManyLeadersThanOfOne(t *testing.T) {
	for _, mode := range []string{"", `,"mode":"shared"`} {
		synctest.Test(t, func(t *testing.T) {
			w, m := three(t, mode)
			got, err := w.fetch(m, 100, 0)
			if err != nil || count(got) != 4 {
				t.Fatal(got, err)
			}
			held := strings.Fields(got)
			w.want("", m, 100, 0)
			began := time.Now()
			w.want("", m, 100, 5*time.Second)
			if d := time.Since(began); d > 6*time.Second {
				t.Errorf("after %v", d)
			}
			w.acks(m, held[0], held[3])
			if got, err = w.fetch(m, 100, 0); err != nil || count(got) != 2 {
				t.Fatal(got, err)
			}
			// One who waits goes on with what another call settles, wherever that was leased.
			held = append(strings.Fields(got), held[1], held[2])
			for _, place := range held {
				time.AfterFunc(100*time.Millisecond, func() { w.acks(m, place) })
				began := time.Now()
				if got, err := w.fetch(m, 1, 10*time.Second); err != nil || count(got) != 1 || time.Since(began) > 300*time.Millisecond {
					t.Errorf("%q after %v, %v", got, time.Since(began), err)
				}
			}
			// What was settled elsewhere shows a little later, and so do leases that ran out.
			w.want("", m, 1, 0)
			if got, err := w.fetch(m, 1, time.Minute); err != nil || count(got) != 1 {
				t.Error(got, err)
			}
		})
	}
}

// Two calls of one member at a time do not have twice as much.
func TestCallsOfOneMemberShareItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := three(t, "")
		var mu sync.Mutex
		var calls sync.WaitGroup
		all := ""
		for range 6 {
			calls.Go(func() {
				got, err := w.fetch(m, 3, time.Second)
				mu.Lock()
				defer mu.Unlock()
				if all += got + " "; err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if count(all) != 4 {
			t.Errorf("they have %s", all)
		}
	})
}

// Over one connection everything comes, and never more at a time than the member may hold.
func TestDeliveriesStayWithinWhatAMemberMayHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := three(t, `,"lease":"1m"`)
		to := &member{}
		to.took = func(lines [][]byte) {
			to.held += len(lines)
			if to.held > 4 {
				t.Errorf("%d records", to.held)
			}
			for _, place := range strings.Fields(places(lines)) {
				time.AfterFunc(time.Duration(20+len(to.all))*time.Millisecond, func() {
					to.mu.Lock()
					to.held--
					to.mu.Unlock()
					w.acks(m, place)
				})
				to.all = append(to.all, place)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var delivering sync.WaitGroup
		delivering.Go(func() {
			if err := w.groups.Deliver(ctx, m, to); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		to.mu.Lock()
		if len(to.all) != 24 {
			t.Errorf("%d of 24 records came", len(to.all))
		}
		to.mu.Unlock()
		cancel()
		delivering.Wait()
	})
}

// member is an outlet without bounds of its own.
type member struct {
	mu   sync.Mutex
	held int
	all  []string
	took func([][]byte)
}

func (m *member) Room() (int, int)            { return 1000, 1 << 20 }
func (m *member) Woken() <-chan struct{}      { return nil }
func (m *member) Assigned(_, _ []ident.Index) {}

func (m *member) Messages(lines [][]byte, _ int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took(lines)
	return true
}
