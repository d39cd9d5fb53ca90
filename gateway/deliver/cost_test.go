package deliver_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/testkit/memlog"
)

// crowd is many subscriptions at the end of one partition.
type crowd struct {
	m     *memlog.Broker
	topic *cluster.Topic
	subs  []*deliver.Subscription
	lim   deliver.Limit

	mu    sync.Mutex
	woken []*deliver.Subscription
	spare []*deliver.Subscription
}

// newCrowd has n subscriptions; with keys, each reads its own.
func newCrowd(tb testing.TB, n int, keys bool) *crowd {
	c := &crowd{m: memlog.New(), lim: deliver.Limit{Messages: 100, Bytes: 1 << 20}}
	c.topic = c.m.Topic("orders", 1)
	h := startHub(tb, c.m, deliver.Config{})
	for i := range n {
		q := deliver.Request{Topic: c.topic, From: "latest"}
		if keys {
			q.Filter.Keys = []string{fmt.Sprint("k", i)}
		}
		start, err := h.Resolve(tb.Context(), q)
		if err != nil {
			tb.Fatal(err)
		}
		slot := new(*deliver.Subscription)
		sub := h.Subscribe(start, func() {
			c.mu.Lock()
			c.woken = append(c.woken, *slot)
			c.mu.Unlock()
		})
		*slot = sub
		c.subs = append(c.subs, sub)
		tb.Cleanup(sub.Close)
	}
	return c
}

// message has one record read by all that it is for; live says that it came to
// them from the ring.
func (c *crowd) message(tb testing.TB, key string, readers int) (live bool) {
	c.m.Append(c.topic.Ref(0), key)
	live = true
	for got := 0; got < readers; {
		c.mu.Lock()
		c.woken, c.spare = c.spare[:0], c.woken
		c.mu.Unlock()
		for i, s := range c.spare {
			for ev := s.Next(tb.Context(), c.lim); ev.Kind != deliver.Idle; ev = s.Next(tb.Context(), c.lim) {
				if ev.Kind == deliver.Messages {
					got += ev.Run.Len()
					live = live && ev.Run.Live()
				}
			}
			c.spare[i] = nil
		}
		if len(c.spare) == 0 {
			runtime.Gosched()
		}
	}
	return live
}

// begin returns once the feed has begun and all are at its end.
func (c *crowd) begin(tb testing.TB, key string, readers int) {
	c.mu.Lock()
	c.woken = append(c.woken, c.subs...)
	c.mu.Unlock()
	for live := 0; live < 20; {
		if c.message(tb, key, readers) {
			live++
		}
	}
}

// TestADeliveryAllocatesNothing: what a message allocates is the message's, and
// the same for one reader as for a thousand, and among ten thousand keys.
func TestADeliveryAllocatesNothing(t *testing.T) {
	measure := func(n int, keys bool) float64 {
		c := newCrowd(t, n, keys)
		readers, key := n, ""
		if keys {
			readers, key = 1, "k7"
		}
		c.begin(t, key, readers)
		// The least of some: on a busy machine the feed wakes in the midst of a message,
		// and what it allocates then counts too.
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(100, func() { c.message(t, key, readers) }))
		}
		return least
	}
	one := measure(1, false)
	for _, c := range []struct {
		n    int
		keys bool
	}{{1000, false}, {10_000, true}} {
		// Whatever grows by and by, such as the log in memory, is rounded away, and what the
		// race detector has pools forget.
		if got := measure(c.n, c.keys); got > one+4 {
			t.Errorf("%d subscriptions, keys of their own %v: %.0f allocations a message, with one subscription %.0f", c.n, c.keys, got, one)
		}
	}
}

func TestACursorOfOnePartitionAllocatesNothing(t *testing.T) {
	c := newCrowd(t, 1, true)
	c.begin(t, "k0", 1)
	text := make([]byte, 0, 192)
	if n := testing.AllocsPerRun(100, func() { text = c.subs[0].AppendCursor(text[:0]) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
	if string(text) != c.subs[0].Cursor() {
		t.Errorf("%s is not %s", text, c.subs[0].Cursor())
	}
}

// BenchmarkDelivery is from a record's being kept to its being read by all that
// it is for.
func BenchmarkDelivery(b *testing.B) {
	for _, c := range []struct {
		name    string
		n       int
		key     string
		readers int
	}{{"one", 1, "", 1}, {"thousand", 1000, "", 1000}, {"one of ten thousand keys", 10_000, "k7", 1}} {
		b.Run(c.name, func(b *testing.B) {
			crowd := newCrowd(b, c.n, c.key != "")
			crowd.begin(b, c.key, c.readers)
			b.ReportAllocs()
			for b.Loop() {
				crowd.message(b, c.key, c.readers)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.readers), "ns/delivery")
		})
	}
}
