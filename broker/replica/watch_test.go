package replica

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// word notes what a replica leaves word of.
type word struct {
	alone
	said []string
}

func (w *word) Push(f ident.NodeID, _ ident.Partition) {
	w.said = append(w.said, "push "+string('0'+f[0]))
}

func (w *word) Tell(f ident.NodeID, _ ident.Partition) {
	w.said = append(w.said, "tell "+string('0'+f[0]))
}
func (w *word) Say(ident.NodeID, ident.Partition) { w.said = append(w.said, "say") }
func (w *word) Heard(ident.NodeID) time.Time      { return time.Now() }

func (w *word) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.said, want) {
		t.Fatalf("it said %q, not %q", w.said, want)
	}
	w.said = nil
}

func ordered(d *disk, w *word, leader byte) *Replica {
	return orderedLogged(d, w, leader, slog.New(slog.DiscardHandler))
}

func orderedLogged(d *disk, w *word, leader byte, logger *slog.Logger) *Replica {
	r := New(Config{
		Partition: ref, Topic: "orders", Self: self, Log: d, Machine: partition.New(0), Outlet: w, Lag: time.Second, Now: time.Now,
		Lease: func() bool { return true }, Alive: func(cluster.Life) bool { return true }, Logger: logger,
	})
	all := []ident.NodeID{{1}, {2}, {3}}
	r.Order(Orders{
		View:     replication.View{Epoch: 3, Version: 1, Leader: ident.NodeID{leader}, Replicas: all, ISR: all, MinInsync: 2},
		Range:    ident.FullRange,
		Settings: cluster.Settings{MaxMessageBytes: 1000, IdempotencyWindow: time.Minute},
	})
	w.said = nil
	return r
}

// A new high watermark is no message of its own for a follower where nobody waits for
// it, and one at once for the other.
func TestALeaderTellsAtOnceWhoIsWatched(t *testing.T) {
	d, w := &disk{}, &word{}
	r := ordered(d, w, 1)
	two, three := cluster.Life{Node: ident.NodeID{2}, Epoch: 1}, cluster.Life{Node: ident.NodeID{3}, Epoch: 1}
	for _, life := range []cluster.Life{two, three} {
		r.Standing(life, rpc.Standing{Partition: ref, Epoch: 3})
		r.Held(life, rpc.Held{Partition: ref, Epoch: 3, Watched: life == three})
	}
	w.said = nil
	r.Append(rpc.Append{Partition: ref, Batch: one(0)}, func(rpc.Appended) {})
	w.expect(t, "push 2", "push 3")
	for _, life := range []cluster.Life{two, three} {
		if _, err := r.Push(life.Node, 1<<20); err != nil {
			t.Fatal(err)
		}
		r.Held(life, rpc.Held{Partition: ref, Epoch: 3, Durable: record.At(1), Watched: life == three})
	}
	w.expect(t)
	d.sync(nil)
	w.expect(t, "push 3", "tell 2")
	// Somebody has begun to wait where the high watermark is not known yet.
	r.Held(two, rpc.Held{Partition: ref, Epoch: 3, Durable: record.At(1), Watched: true})
	w.expect(t, "push 2", "push 3")
}

// A follower says at once that somebody waits there, and that nobody does any more
// along with what it says anyway.
func TestAFollowerSaysThatItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, w := &disk{}, &word{}
		r := ordered(d, w, 2)
		leader := ident.NodeID{2}
		if s, _ := r.Say(leader); s == nil {
			t.Fatal("it does not say where it stands")
		}
		if err := r.Diverged(rpc.Divergence{Partition: ref, Epoch: 3, Agreed: true}); err != nil {
			t.Fatal(err)
		}
		if _, h := r.Say(leader); h == nil || h.Watched {
			t.Fatalf("%+v", h)
		}
		w.said = nil
		if _, err := r.Wait(0); err != nil {
			t.Fatal(err)
		}
		w.expect(t, "say")
		if _, h := r.Say(leader); h == nil || !h.Watched {
			t.Fatalf("%+v", h)
		}
	})
}

// What cannot be taken comes again every second, of each partition, for as long as the
// disk is full.
func TestAFollowerThatCannotTakeAnythingSaysSoOnce(t *testing.T) {
	var log strings.Builder
	d := &disk{}
	r := orderedLogged(d, &word{}, 2, slog.New(slog.NewTextHandler(&log, nil)))
	push := func(batches ...byte) {
		t.Helper()
		if err := r.Diverged(rpc.Divergence{Partition: ref, Epoch: 3, Of: d.end, Agreed: true}); err != nil {
			t.Fatal(err)
		}
		r.Pushed(rpc.Push{Partition: ref, Epoch: 3, Prev: d.end, Batches: batches})
	}
	expect := func(lines int) {
		t.Helper()
		if n := strings.Count(log.String(), "cannot take"); n != lines {
			t.Fatalf("it said so %d times, not %d:\n%s", n, lines, &log)
		}
	}
	b := one(0)
	b.Assign(record.Place{Partition: ref, Epoch: 3})
	d.admit = fault.New(fault.DiskFull, "no room")
	push(b...)
	push(b...)
	push() // the high watermark alone
	push(b...)
	expect(1)
	d.admit = nil
	push(b...)
	if d.end == (record.Position{}) {
		t.Fatal("it takes nothing")
	}
	d.admit = fault.New(fault.DiskFull, "no room")
	push(b...)
	expect(2)
}
