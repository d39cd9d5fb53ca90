package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// harm changes a byte of what a broker keeps, where a read finds it.
func (b *broker) harm() {
	b.t.Helper()
	b.host.mu.RLock()
	log := b.host.replicas[part].log
	b.host.mu.RUnlock()
	flipped := false
	await(b.t, "a segment", func() bool {
		err := filepath.WalkDir(filepath.Join(b.dir, "topics"), func(name string, d fs.DirEntry, err error) error {
			if err != nil || flipped || d.IsDir() || !strings.HasSuffix(name, ".log") {
				return err
			}
			data, err := os.ReadFile(name)
			if err != nil || len(data) == 0 {
				return err
			}
			flipped = true
			data[len(data)/2] ^= 1
			return os.WriteFile(name, data, 0o600)
		})
		if err != nil {
			b.t.Fatal(err)
		}
		return flipped
	})
	await(b.t, "damage", func() bool {
		for o := range log.End() {
			if _, err := log.Read(o, log.End(), 1); err != nil {
				return log.Damage() != nil
			}
		}
		return false
	})
}

// awaitRenounced waits until a broker ends its life.
func (b *broker) awaitRenounced() (life cluster.Life) {
	b.t.Helper()
	await(b.t, "the end of a life", func() bool {
		select {
		case life = <-b.renounced:
			return true
		default:
			return false
		}
	})
	return life
}

// readmitted is a cluster of two whose follower was away and has everything again, and
// whose leader's wish to have it back in the ISR is under way.
func readmitted(t *testing.T) (c *court, leader, follower *broker) {
	ids := []ident.NodeID{{1}, {2}}
	c = newCourt(1, ids...)
	w := newWires()
	all := w.startAll(t, c, ids...)
	leader, follower = all[0], all[1]
	for i := range int64(20) {
		publish(t, c, all, 1, i)
	}
	w.isolate(follower.id, true)
	await(t, "a smaller ISR", func() bool { return len(c.part().ISR) == 1 })
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	w.isolate(follower.id, false)
	await(t, "a change that takes it in", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.held) > 0 && len(c.held[0].Of[0].ISR) == 2
	})
	return c, leader, follower
}

// A leader has heard that a follower holds everything and asks for it to be taken in; on
// the follower damage is found before the coordinator hears of that. Whatever comes
// first, nobody who lacks records is ever in sync.
func TestADamagedLogIsBegunAnewOnlyWhenNobodyCanCountOnItAnyMore(t *testing.T) {
	c, leader, b := readmitted(t)
	b.harm()
	life := b.awaitRenounced()
	if noted, _ := b.store.GetMeta("damaged"); noted == "" {
		t.Error("the life ends, and the next one does not know why")
	}
	// Not in the ISR, as far as the follower knows; but what would put it there is under way.
	if h := b.host.harmed(); len(h.free) > 0 || !slices.Equal(h.counted, []ident.Partition{part}) || h.life != life {
		t.Fatalf("%+v", h)
	}
	if err := b.host.replace(part); err != nil || len(b.store.Damaged()) == 0 {
		t.Fatal("it was begun anew", err)
	}

	// The next life hears of all the damage there is, or does not count.
	next := c.register(b.id)
	if err := b.host.Live(next, nil); !fault.Is(err, fault.Fenced) {
		t.Fatal(err)
	}
	if err := b.host.Live(next, b.store.Damaged()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	held := c.held
	c.late = false
	for i := range held { // what was asked for in the former life comes now, once and again
		if slices.Contains(c.insyncLocked(&held[i]), true) {
			t.Error("taken in by the word of a former life")
		}
	}
	c.mu.Unlock()
	await(t, "a repaired replica that is in sync", func() bool { return len(c.part().ISR) == 2 })
	if len(b.store.Damaged()) != 0 || !slices.Contains(b.host.Mended(), part) {
		t.Fatal("in sync, and not repaired")
	}
	sameEverywhere(t, c, []*broker{leader, b})
}

// A log that was begun anew is another one: damage of it has to be said anew.
func TestDamageOfTheFreshLogIsDeclaredAnew(t *testing.T) {
	c, leader, b := readmitted(t)
	c.mu.Lock()
	c.late = false
	c.mu.Unlock()
	await(t, "both in sync", func() bool { return len(c.part().ISR) == 2 })
	b.harm()
	b.awaitRenounced()
	next := c.register(b.id)
	if err := b.host.Live(next, b.store.Damaged()); err != nil {
		t.Fatal(err)
	}
	await(t, "a repaired replica that is in sync", func() bool { return len(c.part().ISR) == 2 })
	sameEverywhere(t, c, []*broker{leader, b})
	b.harm()
	if h := b.host.harmed(); len(h.free) > 0 || len(h.counted) != 1 || h.life != (cluster.Life{Node: b.id, Epoch: next.Epoch}) {
		t.Fatalf("%+v", h)
	}
}

// Nobody else is in sync as the leader's log is found damaged. Where the topic puts serving
// above keeping, the one who follows and has what can be read leads on, and the damaged log
// is replaced like any other.
func TestADamagedLeaderThatIsAloneGivesUpItsLeadWhereTheTopicAllowsIt(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		t.Run(fmt.Sprint("unclean ", unclean), func(t *testing.T) {
			ids := []ident.NodeID{{1}, {2}}
			c := newCourt(1, ids...)
			c.change(func(t *cluster.Topic) { t.Settings.Unclean = unclean })
			w := newWires()
			all := w.startAll(t, c, ids...)
			leader, follower := all[0], all[1]
			w.isolate(follower.id, true)
			await(t, "a smaller ISR", func() bool { return len(c.part().ISR) == 1 })
			for i := range int64(20) {
				publish(t, c, all, 1, i)
			}
			leader.harm()
			w.isolate(follower.id, false)
			if !unclean {
				await(t, "a follower that has what there is", func() bool {
					r, err := leader.host.Replica(part)
					if err != nil {
						t.Fatal(err)
					}
					_, _, ok := r.Successor()
					return ok
				})
				if h := leader.host.harmed(); !h.any || len(h.alone)+len(h.counted)+len(h.free) > 0 || c.part().Leader != leader.id {
					t.Fatalf("%+v, %+v", h, c.part())
				}
				return
			}
			await(t, "another leader", func() bool { return c.part().Leader == follower.id })
			leader.awaitRenounced()
			next := c.register(leader.id)
			if err := leader.host.Live(next, leader.store.Damaged()); err != nil {
				t.Fatal(err)
			}
			publish(t, c, all, 2, 0)
			if told := strings.Count(follower.logged.text(), "an unclean election"); told != 1 {
				t.Errorf("the election was told %d times", told)
			}
			sameEverywhere(t, c, all)
			if len(leader.store.Damaged()) != 0 || !slices.Contains(leader.host.Mended(), part) {
				t.Fatal("in sync, and not repaired")
			}
		})
	}
}
