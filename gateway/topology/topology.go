// Package topology routes: from a topic's name to what it is, from a key to
// its partition. It is pure; the snapshot it reads is published by the
// coordinator's change feed.
package topology

import (
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Source gives the newest snapshot of the cluster this node knows. It never
// blocks and never returns nil.
type Source interface {
	Snapshot() *cluster.Snapshot
}

// Topic finds a topic by name.
func Topic(s Source, name string) (*cluster.Topic, error) {
	if t, ok := s.Snapshot().Topic(name); ok {
		return t, nil
	}
	return nil, NotFound(name)
}

// NotFound is the error for a topic that does not exist.
func NotFound(name string) error {
	return fault.New(fault.TopicNotFound, "there is no topic %q; create it with POST /topics/ {\"name\":…} or `tidewire topic create`", clip(name)).With("topic", clip(name))
}

// Partition finds a partition by number.
func Partition(t *cluster.Topic, i ident.Index) (*cluster.Partition, error) {
	if p, ok := t.Partition(i); ok {
		return p, nil
	}
	return nil, fault.New(fault.PartitionNotFound, "topic %q has no partition %d; it has %d, from 0", t.Name, i, len(t.Partitions)).
		With("topic", t.Name).With("partition", i)
}

// Owner is the live partition that owns a key hash. Live partitions cover the
// whole hash space, so there always is one.
func Owner(t *cluster.Topic, hash uint32) *cluster.Partition {
	for i := range t.Partitions {
		if p := &t.Partitions[i]; Live(p) && p.Range.Contains(hash) {
			return p
		}
	}
	return &t.Partitions[0]
}

// Live reports whether a partition belongs to the newest generation.
func Live(p *cluster.Partition) bool { return len(p.Children) == 0 }

// Spread is the live partition for the n-th record that names no place: round
// robin.
func Spread(t *cluster.Topic, n uint64) *cluster.Partition {
	live := make([]*cluster.Partition, 0, cluster.MaxPartitions)
	for i := range t.Partitions {
		if Live(&t.Partitions[i]) {
			live = append(live, &t.Partitions[i])
		}
	}
	return live[n%uint64(len(live))]
}

func clip(s string) string {
	if len(s) > ident.MaxNameBytes {
		return s[:ident.MaxNameBytes] + "…"
	}
	return s
}
