package topology

import (
	"context"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

type world cluster.Snapshot

func (w *world) Snapshot() *cluster.Snapshot { return (*cluster.Snapshot)(w) }

func (w *world) CatchUp(context.Context) {}

// split is a topic whose partition 0 was split into 1 and 2.
func split() *cluster.Topic {
	half := ident.HashSpace / 2
	return &cluster.Topic{Name: "t", Partitions: []cluster.Partition{
		{Index: 0, Range: ident.FullRange, Children: []ident.Index{1, 2}},
		{Index: 1, Range: ident.HashRange{Lo: 0, Hi: half}, Parents: []ident.Index{0}},
		{Index: 2, Range: ident.HashRange{Lo: half, Hi: ident.HashSpace}, Parents: []ident.Index{0}},
	}}
}

func TestOnlyLivePartitionsAreRoutedTo(t *testing.T) {
	topic := split()
	for hash, want := range map[uint32]ident.Index{0: 1, 1<<31 - 1: 1, 1 << 31: 2, 1<<32 - 1: 2} {
		if got := Owner(topic, hash).Index; got != want {
			t.Errorf("hash %d goes to %d, want %d", hash, got, want)
		}
	}
	if a, b := Spread(topic, 0).Index, Spread(topic, 1).Index; a != 1 || b != 2 {
		t.Errorf("records without a key go to %d and %d", a, b)
	}
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	w := &world{Topics: map[string]*cluster.Topic{"t": split()}}
	if _, err := Topic(t.Context(), w, "x"); !fault.Is(err, fault.TopicNotFound) {
		t.Error(err)
	}
	topic, err := Topic(t.Context(), w, "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Partition(topic, 9); !fault.Is(err, fault.PartitionNotFound) {
		t.Error(err)
	}
	if p, err := Partition(topic, 2); err != nil || p.Index != 2 {
		t.Error(p, err)
	}
}

// behind is a node that has not heard of what it catches up with.
type behind struct {
	snapshot, next *cluster.Snapshot
	caught         int
}

func (b *behind) Snapshot() *cluster.Snapshot { return b.snapshot }
func (b *behind) CatchUp(context.Context)     { b.snapshot = b.next; b.caught++ }

func TestWhatIsNotThereIsLookedForOnceMore(t *testing.T) {
	one := &cluster.Snapshot{Topics: map[string]*cluster.Topic{"t": split()}}
	b := &behind{snapshot: &cluster.Snapshot{}, next: one}
	if topic, err := Topic(t.Context(), b, "t"); err != nil || topic != one.Topics["t"] || b.caught != 1 {
		t.Errorf("%v, %v after %d", topic, err, b.caught)
	}
	if _, err := Topic(t.Context(), b, "t"); err != nil || b.caught != 1 {
		t.Errorf("what is there is looked for: %v, %d", err, b.caught)
	}
	if topic, err := Topic(t.Context(), b, "x"); !fault.Is(err, fault.TopicNotFound) || topic != nil || b.caught != 2 {
		t.Errorf("%v, %v after %d", topic, err, b.caught)
	}
	if s := Latest(t.Context(), b); s != one || b.caught != 3 {
		t.Errorf("a list of %p, want of %p", s, one)
	}
	b.caught = 2
	for _, err := range []error{nil, fault.New(fault.Invalid, "no"), fault.New(fault.PartitionNotFound, "no"), context.Canceled} {
		if got := Find(t.Context(), b, func(*cluster.Snapshot) error { return err }); got != err || b.caught != 2 {
			t.Errorf("%v for %v, after %d", got, err, b.caught)
		}
	}
	for _, kind := range []fault.Kind{fault.GroupNotFound, fault.MemberNotFound, fault.NodeNotFound, fault.NoResponders, fault.RequesterGone} {
		before, looks := b.caught, 0
		err := Find(t.Context(), b, func(*cluster.Snapshot) error {
			if looks++; looks == 2 {
				return nil
			}
			return fault.New(kind, "not yet")
		})
		if err != nil || b.caught != before+1 {
			t.Errorf("%s: %v", kind.Code(), err)
		}
	}
}
