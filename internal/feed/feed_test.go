package feed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/feed"
)

func TestNextWaitsForSomethingNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New()
		if s := f.Snapshot(); s == nil || s.Index != 0 {
			t.Fatalf("a new feed has %v", s)
		}
		f.Publish(&cluster.Snapshot{Index: 3})
		got := make(chan uint64, 1)
		go func() {
			s, err := f.Next(t.Context(), 3)
			if err != nil {
				t.Error(err)
				return
			}
			got <- s.Index
		}()
		synctest.Wait()
		f.Publish(&cluster.Snapshot{Index: 2}) // older: nobody sees it
		synctest.Wait()
		if len(got) != 0 || f.Snapshot().Index != 3 {
			t.Fatal("an older snapshot was handed out")
		}
		f.Publish(&cluster.Snapshot{Index: 9})
		if i := <-got; i != 9 {
			t.Fatalf("index %d", i)
		}
	})
}

func TestASlowReaderFindsTheLatest(t *testing.T) {
	f := feed.New()
	for i := range uint64(100) {
		f.Publish(&cluster.Snapshot{Index: i + 1})
	}
	if s, err := f.Next(t.Context(), 4); err != nil || s.Index != 100 {
		t.Fatalf("%v, %v", s, err)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := feed.New().Next(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
