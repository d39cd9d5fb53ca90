package watch_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"tidewire/coordinator/watch"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
)

// mostBytes is what one message of the change feed may be.
const mostBytes = 1 << 20

// carried is of how many parts one goes through JSON: they are much alike, and all of
// them would take the race detector a minute.
const carried = 16

// large is a cluster of so many partitions.
func large(partitions int) *cluster.Snapshot {
	const each = 250
	nodes := map[ident.NodeID]*cluster.Node{}
	var replicas []ident.NodeID
	for i := range 100 {
		id := ident.NodeID{0xff, byte(i)}
		nodes[id] = &cluster.Node{ID: id, Name: fmt.Sprint("n", i), Roles: []string{"broker"}, State: cluster.Alive}
		if i < 5 {
			replicas = append(replicas, id)
		}
	}
	s := snapshot(7)
	s.Nodes = nodes
	for i := range partitions / each {
		t := &cluster.Topic{Name: fmt.Sprint("topic-", i), Modified: uint64(1 + i%7)}
		binary.BigEndian.PutUint32(t.ID[:], uint32(i+1))
		for p := range each {
			t.Partitions = append(t.Partitions, cluster.Partition{
				Index: ident.Index(p), Range: ident.HashRange{Lo: uint64(p) << 20, Hi: uint64(p+1) << 20}, State: cluster.Open,
				Replicas: replicas, ISR: replicas, Leader: replicas[0], LeaderEpoch: 3, Version: 9,
			})
		}
		s.Topics[t.Name], s.ByID[t.ID] = t, t
	}
	crowd(s.Groups, s.Topics["topic-0"])
	for i := range 4096 {
		s.Deleted[ident.TopicID{0xee, byte(i >> 8), byte(i)}] = uint64(1 + i%6)
	}
	return s
}

// crowd gives a topic many groups, and one of as many members as there may be, with the
// longest names.
func crowd(into map[ident.TopicID]*cluster.GroupTable, t *cluster.Topic) {
	var all []*cluster.Group
	for i := range 5_001 {
		g := &cluster.Group{ID: ident.GroupID{1, byte(i), byte(i >> 8)}, Topic: t.ID, Name: fmt.Sprint("group-", i), Modified: uint64(1 + i%7)}
		members := 2
		if i == 5_000 {
			members = cluster.MaxGroupMembers
		}
		for k := range members {
			g.Members = append(g.Members, cluster.Member{ID: fmt.Sprintf("%0*d", ident.MaxMemberBytes, k), Epoch: 1 << 60, Since: time.Unix(1e9, 123456789).UTC()})
		}
		for k := range t.Partitions {
			g.Owners = append(g.Owners, cluster.Owner{Partition: ident.Index(k), Member: g.Members[0].ID, Next: g.Members[1].ID, Epoch: 1 << 60, Notice: 1 << 60})
			if members == 2 && k == 3 {
				break
			}
		}
		all = append(all, g)
	}
	into[t.ID] = into[t.ID].With(all...)
}

// wire is a coordinator at the other end of a stream.
type wire struct {
	control.Client // nothing but Watch is called
	feed           *feed.Feed
	parts          atomic.Int64
	most           atomic.Int64
}

func (w *wire) Watch(ctx context.Context, _ ident.NodeID, from uint64, each func(cluster.Message) error) error {
	return watch.Stream(ctx, w.feed, from, func() (ident.NodeID, time.Duration) { return leader, 0 }, func(m cluster.Message) error {
		if m.News != nil && w.parts.Add(1)%carried != 0 {
			return each(m)
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		w.most.Store(max(w.most.Load(), int64(len(b))))
		var got cluster.Message
		if err := json.Unmarshal(b, &got); err != nil {
			return err
		}
		return each(got)
	})
}

// TestALargeClusterTravelsInParts has a node follow a cluster of 200,000 partitions.
func TestALargeClusterTravelsInParts(t *testing.T) {
	s := large(200_000)
	synctest.Test(t, func(t *testing.T) {
		w := &wire{feed: feed.New()}
		w.feed.Publish(s)
		r := control.New(control.Config{Client: w, Known: func() []ident.NodeID { return []ident.NodeID{leader} }})
		activity.Start(t, r.Run)
		got, err := r.Next(t.Context(), 6)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatal("what arrived is another cluster")
		}
		t.Logf("%d partitions in %d parts, the longest %d bytes", 200_000, w.parts.Load(), w.most.Load())
		if w.most.Load() > mostBytes || w.parts.Load() < 100 {
			t.Errorf("%d parts, the longest of %d bytes", w.parts.Load(), w.most.Load())
		}
		// One topic changes, and nothing else travels.
		next := *s
		next.Index, next.Topics, next.ByID = 8, maps.Clone(s.Topics), maps.Clone(s.ByID)
		changed := *s.Topics["topic-3"]
		changed.Modified = 8
		next.Topics["topic-3"], next.ByID[changed.ID] = &changed, &changed
		w.parts.Store(0)
		w.feed.Publish(&next)
		if got, err = r.Next(t.Context(), 7); err != nil || got.Topics["topic-3"].Modified != 8 || w.parts.Load() != 1 {
			t.Errorf("%d parts, %v", w.parts.Load(), err)
		}
		// One group changes, and one goes: they travel alone.
		last := next
		last.Index, last.Groups = 9, maps.Clone(s.Groups)
		topic := s.Topics["topic-0"].ID
		gone, joined := s.Groups[topic].Get("group-1"), *s.Groups[topic].Get("group-2")
		joined.Modified = 9
		last.Groups[topic] = s.Groups[topic].Without(gone.Name).With(&joined)
		last.GroupsGone = []cluster.GroupGone{{Topic: topic, Name: gone.Name, ID: gone.ID, Index: 9}}
		w.parts.Store(0)
		w.feed.Publish(&last)
		got, err = r.Next(t.Context(), 8)
		if err != nil || got.Groups[topic].Len() != 5_000 || !reflect.DeepEqual(got.Groups, last.Groups) || w.parts.Load() != 1 {
			t.Errorf("%d groups in %d parts, %v", got.Groups[topic].Len(), w.parts.Load(), err)
		}
	})
}

// TestSlowWatchersKeepNothingAlive has many watchers that take a part and no more,
// while the cluster goes on: no former state of it stays in memory for them.
func TestSlowWatchersKeepNothingAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New()
		first := large(5_000)
		f.Publish(first)
		var old []weak.Pointer[cluster.Snapshot]
		now := first
		for range 50 {
			activity.Start(t, func(ctx context.Context) error {
				_ = watch.Stream(ctx, f, 0, func() (ident.NodeID, time.Duration) { return leader, 0 }, func(cluster.Message) error {
					<-ctx.Done() // it takes nothing
					return context.Cause(ctx)
				})
				return nil
			})
			synctest.Wait()
			next := *now
			next.Index, next.Topics, next.ByID = now.Index+1, maps.Clone(now.Topics), maps.Clone(now.ByID)
			old = append(old, weak.Make(now))
			now = &next
			f.Publish(now)
		}
		first = nil
		runtime.GC()
		alive := 0
		for _, p := range old {
			if p.Value() != nil {
				alive++
			}
		}
		if alive > 0 {
			t.Errorf("%d of %d former states are kept for watchers that are slow", alive, len(old))
		}
		runtime.KeepAlive(now)
	})
}
