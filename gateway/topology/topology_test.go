package topology

import (
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

type world cluster.Snapshot

func (w *world) Snapshot() *cluster.Snapshot { return (*cluster.Snapshot)(w) }

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
	if _, err := Topic(w, "x"); !fault.Is(err, fault.TopicNotFound) {
		t.Error(err)
	}
	topic, err := Topic(w, "t")
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
