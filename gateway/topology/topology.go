// Package topology routes: from a topic's name to what it is, from a key to
// its partition. It is pure; the snapshot it reads is published by the
// coordinator's change feed.
package topology

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Source gives the newest snapshot of the cluster this node knows. It never
// blocks and never returns nil.
type Source interface {
	Snapshot() *cluster.Snapshot
}

// Present is a Source that can be brought up to date.
type Present interface {
	Source
	// CatchUp returns once the snapshot has everything that was answered anywhere before
	// the call, or a little later where that cannot be had.
	CatchUp(ctx context.Context)
}

// Find looks for something in the newest snapshot. What is not there may have been made a
// moment ago by way of another node, so look is asked again by a snapshot that has all
// that was answered before.
func Find(ctx context.Context, s Present, look func(*cluster.Snapshot) error) error {
	err := look(s.Snapshot())
	if absent(err) {
		s.CatchUp(ctx)
		err = look(s.Snapshot())
	}
	return err
}

// Latest is a snapshot to make a list of: it has what was answered anywhere before the
// call, as far as that can be had soon.
func Latest(ctx context.Context, s Present) *cluster.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	s.CatchUp(ctx)
	return s.Snapshot()
}

// listWait is how long a list may be late: whoever looks again and again is not to wait
// where nobody answers.
const listWait = 500 * time.Millisecond

// absent says that something is not there, which may be news to a snapshot.
func absent(err error) bool {
	if err == nil {
		return false
	}
	switch fault.KindOf(err) {
	case fault.TopicNotFound, fault.GroupNotFound, fault.MemberNotFound, fault.NodeNotFound, fault.NoResponders, fault.RequesterGone:
		return true
	}
	return false
}

// Topic finds a topic by name, as Find does.
func Topic(ctx context.Context, s Present, name string) (t *cluster.Topic, err error) {
	err = Find(ctx, s, func(now *cluster.Snapshot) error {
		var ok bool
		if t, ok = now.Topic(name); !ok {
			return NotFound(name)
		}
		return nil
	})
	return t, err
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
