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
	for i := range 4096 {
		s.Deleted[ident.TopicID{0xee, byte(i >> 8), byte(i)}] = uint64(1 + i%6)
	}
	return s
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
