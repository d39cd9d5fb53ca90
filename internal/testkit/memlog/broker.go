package memlog

import (
	"context"
	"maps"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Broker holds topics and the log of each of their partitions. It is the
// source of a hub and the topology of a gateway.
type Broker struct {
	MaxMessageBytes int // of topics made from here on

	mu     sync.Mutex
	snap   *cluster.Snapshot
	logs   map[ident.Partition]*log
	topics int   // ever made
	reads  int   // ever asked for
	lastMs int64 // of the newest batch
}

func New() *Broker {
	return &Broker{
		snap: &cluster.Snapshot{Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}},
		logs: map[ident.Partition]*log{},
	}
}

// Topic makes a topic of n partitions, each with its share of the hashes.
func (b *Broker) Topic(name string, n int) *cluster.Topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics++
	t := &cluster.Topic{Name: name, Generation: 1, ID: ident.TopicID{byte(b.topics)}}
	t.Settings.MaxMessageBytes, t.Settings.IdempotencyWindow = b.MaxMessageBytes, cluster.DefaultIdempotencyWindow
	for i := range n {
		p := cluster.Partition{Index: ident.Index(i), State: cluster.Open, Leader: ident.NodeID{1}, LeaderEpoch: 1}
		p.Range = ident.HashRange{Lo: ident.HashSpace * uint64(i) / uint64(n), Hi: ident.HashSpace * uint64(i+1) / uint64(n)}
		t.Partitions = append(t.Partitions, p)
		b.logs[t.Ref(p.Index)] = newLog()
	}
	b.changeLocked(func(s *cluster.Snapshot) { s.Topics[name], s.ByID[t.ID] = t, t })
	return t
}

// DeleteTopic takes a topic away; whoever waits at its end is woken.
func (b *Broker) DeleteTopic(t *cluster.Topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changeLocked(func(s *cluster.Snapshot) { delete(s.Topics, t.Name); delete(s.ByID, t.ID) })
	for _, p := range t.Partitions {
		close(b.logs[t.Ref(p.Index)].changed)
		delete(b.logs, t.Ref(p.Index))
	}
}

// changeLocked replaces the snapshot: one that was given out stays as it is.
func (b *Broker) changeLocked(change func(*cluster.Snapshot)) {
	next := &cluster.Snapshot{Topics: maps.Clone(b.snap.Topics), ByID: maps.Clone(b.snap.ByID)}
	change(next)
	b.snap = next
}

// Snapshot is the topics of now. Elections do not show in it.
func (b *Broker) Snapshot() *cluster.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.snap
}

// CatchUp has nothing to do: no topic is made anywhere else.
func (b *Broker) CatchUp(context.Context) {}
