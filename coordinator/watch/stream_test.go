package watch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/coordinator/watch"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
)

var leader = ident.NodeID{7}

func snapshot(index uint64, topics ...*cluster.Topic) *cluster.Snapshot {
	s := &cluster.Snapshot{
		Cluster: ident.ClusterID{1}, Index: index, Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{},
		Nodes: map[ident.NodeID]*cluster.Node{}, Deleted: map[ident.TopicID]uint64{}, Groups: map[ident.TopicID]*cluster.GroupTable{},
	}
	for _, t := range topics {
		s.Topics[t.Name], s.ByID[t.ID] = t, t
	}
	return s
}

// reading runs a stream and gives what it sends.
func reading(t *testing.T, f *feed.Feed, from uint64, heard *atomic.Int64) (got func() []cluster.Message, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []cluster.Message
	done := make(chan error, 1)
	go func() {
		done <- watch.Stream(ctx, f, from, func() (ident.NodeID, time.Duration) { return leader, time.Duration(heard.Load()) }, func(m cluster.Message) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
			return nil
		})
	}()
	return func() []cluster.Message {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := all
			all = nil
			return out
		}, func() error {
			cancel()
			return <-done
		}
}

func TestAStreamBeginsWithAllAndGoesOnWithWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &cluster.Topic{ID: ident.TopicID{1}, Name: "a", Modified: 2}
		b := &cluster.Topic{ID: ident.TopicID{2}, Name: "b", Modified: 3}
		f, heard := feed.New(), new(atomic.Int64)
		f.Publish(snapshot(2, a))
		got, end := reading(t, f, 0, heard)
		if m := got(); len(m) != 1 || m[0].News.From != 0 || len(m[0].News.Topics) != 1 || m[0].Index != 2 || m[0].Leader != leader {
			t.Fatalf("%+v", m)
		}
		f.Publish(snapshot(3, a, b))
		m := got()
		if len(m) != 1 || m[0].News.From != 2 || len(m[0].News.Topics) != 1 || m[0].News.Topics[0] != b {
			t.Fatalf("%+v", m)
		}
		time.Sleep(time.Second)
		if m = got(); len(m) != 4 || m[3].News != nil || m[3].Index != 3 {
			t.Fatalf("%d beats: %+v", len(m), m)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestAReaderThatHasAllHearsBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, heard := feed.New(), new(atomic.Int64)
		f.Publish(snapshot(2))
		got, end := reading(t, f, 2, heard)
		if m := got(); len(m) != 1 || m[0].News != nil {
			t.Fatalf("%+v", m)
		}
		f.Publish(snapshot(4))
		if m := got(); len(m) != 1 || m[0].News == nil || m[0].News.From != 2 {
			t.Fatalf("%+v", m)
		}
		_ = end() // it was ended here
	})
}

func TestAReaderThatHasMoreIsToldNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, heard := feed.New(), new(atomic.Int64)
		f.Publish(snapshot(2))
		got, end := reading(t, f, 5, heard)
		time.Sleep(time.Second)
		for _, m := range got() {
			if m.News != nil {
				t.Fatalf("%+v", m.News)
			}
		}
		f.Publish(snapshot(3))
		f.Publish(snapshot(6))
		news := 0
		for _, m := range got() {
			if m.News != nil {
				if news++; m.News.From != 5 || m.News.To != 6 {
					t.Fatalf("%+v", m.News)
				}
			}
		}
		if news != 1 {
			t.Fatalf("%d news", news)
		}
		_ = end() // it was ended here
	})
}

func TestADeafCoordinatorEndsItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, heard := feed.New(), new(atomic.Int64)
		f.Publish(snapshot(2))
		ended := make(chan error, 1)
		go func() {
			ended <- watch.Stream(t.Context(), f, 0, func() (ident.NodeID, time.Duration) { return leader, time.Duration(heard.Load()) }, func(cluster.Message) error { return nil })
		}()
		synctest.Wait()
		heard.Store(int64(watch.DeafAfter) + 1)
		if err := <-ended; !fault.Is(err, fault.CoordinatorUnavailable) {
			t.Fatal(err)
		}
	})
}
