package e2e_test

import (
	"fmt"
	"sync"
	"unique"

	"tidewire/e2e/client"
	"tidewire/internal/testkit/check"
)

// crewReader is one WebSocket subscriber over all its connections: it goes on at
// its cursor and the last offsets it saw, at another gateway if its own is gone.
type crewReader struct {
	follower
	name string
	tape *check.Tape

	mu   sync.Mutex
	next map[int]int64 // offset that is due, by partition
}

// subscribe starts the i-th subscriber.
func (w *crew) subscribe(i int) {
	x := &crewReader{name: fmt.Sprintf("r%03d", i), next: map[int]int64{}}
	of := check.Reader{ID: x.name, Topic: w.topic.Name, Guarantee: check.ExactlyOnce, From: map[int]int64{}}
	for _, p := range w.topic.Layout.Partitions {
		if i%10 != 0 && p.ID != i%len(w.topic.Layout.Partitions) {
			continue
		}
		of.From[p.ID], x.next[p.ID] = 0, 0
		if i%10 != 0 {
			of.Partitions = []int{p.ID}
			x.only = &p.ID
		}
	}
	x.tape = w.rec.Reader(of)
	dialled := i
	x.follower = follower{
		topic: w.topic.Name, only: x.only,
		pick: func() string {
			dialled++
			return w.gateway(dialled).addr
		},
		note: func(m client.Message) error {
			// Many see the same: kept once.
			x.tape.Message(m.Partition, m.Offset, unique.Make(m.KeyText()).Value(), unique.Make(valueOf(m)).Value())
			x.mu.Lock()
			defer x.mu.Unlock()
			if due := x.next[m.Partition]; m.Offset != due {
				return fmt.Errorf("offset %d of partition %d where %d is due", m.Offset, m.Partition, due)
			}
			x.next[m.Partition]++
			return nil
		},
		resumed: x.tape.Resume,
		more:    func() bool { return !w.finished.Load() },
	}
	w.readers = append(w.readers, x)
	w.reading.Go(func() {
		if err := x.webSocket(w.ctx); err != nil && !w.finished.Load() {
			w.t.Errorf("subscriber %s: %v", x.name, err)
		}
	})
}

// behind says where a subscriber has not reached the ends yet.
func (x *crewReader) behind(ends map[int]int64) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, next := range x.next {
		if next < ends[p] {
			return fmt.Sprintf("%s is at %d of %d in partition %d", x.name, next, ends[p], p)
		}
	}
	return ""
}
