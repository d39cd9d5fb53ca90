package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// shareWorkers are members of the group g that work on records that keep coming, and when
// each partition was delivered.
type shareWorkers struct {
	t       *testing.T
	ctx     context.Context
	topic   string
	api     []*client.API
	running sync.WaitGroup
	rejoins map[string]chan struct{}

	mu   sync.Mutex
	seen map[int][]time.Time // by partition
}

func newShareWorkers(t *testing.T, ctx context.Context, c *harness.Cluster, topic string) *shareWorkers {
	w := &shareWorkers{t: t, ctx: ctx, topic: topic, rejoins: map[string]chan struct{}{}, seen: map[int][]time.Time{}}
	for _, m := range c.Gateways() {
		w.api = append(w.api, client.New(m.URL))
	}
	t.Cleanup(w.running.Wait)
	return w
}

// work has a member join, take and acknowledge.
func (w *shareWorkers) work(name string) {
	again := make(chan struct{}, 1)
	w.rejoins[name] = again
	api := w.api[len(w.rejoins)%len(w.api)]
	w.running.Go(func() {
		for w.ctx.Err() == nil {
			j, err := api.JoinGroup(w.ctx, w.topic, "g", name)
			for err == nil || passingRefusal(err) {
				select {
				case <-again:
					err = nil
				default:
					err = w.once(api, j)
					if w.ctx.Err() != nil {
						return
					}
					continue
				}
				break
			}
			if err != nil && w.ctx.Err() == nil {
				w.t.Errorf("%s: %v", name, err)
				return
			}
		}
	})
}

func (w *shareWorkers) once(api *client.API, j client.Joined) error {
	all, err := api.TakeMessages(w.ctx, w.topic, "g", j, 20, "300ms")
	if err != nil || len(all) == 0 {
		return err
	}
	s := client.Settlement{Member: j.Member, Epoch: j.Epoch}
	now := time.Now()
	w.mu.Lock()
	for _, m := range all {
		w.seen[m.Partition] = append(w.seen[m.Partition], now)
		s.Ack = append(s.Ack, client.At{Partition: m.Partition, Offset: m.Offset})
	}
	w.mu.Unlock()
	for {
		_, err := api.Settle(w.ctx, w.topic, "g", s)
		if err == nil || !passingRefusal(err) || w.ctx.Err() != nil {
			return err
		}
		w.t.Logf("an acknowledgement is tried again: %v", err)
		pause(w.ctx, 20*time.Millisecond)
	}
}

// rejoin has a member join again under its name, as one that lost its connection.
func (w *shareWorkers) rejoin(name string) { w.rejoins[name] <- struct{}{} }

// publish has records come to each partition, one every 20 ms.
func (w *shareWorkers) publish(partitions int) {
	w.running.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var sending sync.WaitGroup
		defer sending.Wait()
		slots := make(chan struct{}, 4)
		for {
			select {
			case <-tick.C:
			case <-w.ctx.Done():
				return
			}
			select {
			case slots <- struct{}{}:
			default:
				continue // the machine is busy
			}
			sending.Go(func() {
				defer func() { <-slots }()
				body := ""
				for p := range partitions {
					body += fmt.Sprintf(`{"partition":%d,"value":1}`+"\n", p)
				}
				ans, err := w.api[0].Do(w.ctx, "POST", "/topics/"+w.topic, "application/x-ndjson", body)
				if w.ctx.Err() == nil && (err != nil || ans.Status != 201) {
					w.t.Errorf("publish: %d %v", ans.Status, err)
				}
			})
		}
	})
}

// awaitEach waits until each partition was delivered so many times more.
func (w *shareWorkers) awaitEach(n int) {
	w.t.Helper()
	count := func() map[int]int {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := map[int]int{}
		for p, at := range w.seen {
			all[p] = len(at)
		}
		return all
	}
	before := count()
	harness.Await(w.t, patience, "every partition is delivered", func() bool {
		now := count()
		for p := range 30 {
			if now[p] < before[p]+n {
				return w.t.Failed()
			}
		}
		return true
	})
}

// pauses are the times between two answers with something of one of some partitions, from a
// moment on, the longest last.
func (w *shareWorkers) pauses(partitions []int, from time.Time) (all []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		last := from
		for _, at := range w.seen[p] {
			if at.Before(from) {
				continue
			}
			if at.After(last) { // else it was in the same answer
				all = append(all, at.Sub(last))
			}
			last = at
		}
	}
	slices.Sort(all)
	return all
}

// spread is how long some times are that are sorted.
func spread(all []time.Duration) string {
	var out []string
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		d := all[min(int(share*float64(len(all))), len(all)-1)]
		out = append(out, fmt.Sprintf("%g%% within %s", 100*share, d.Round(100*time.Microsecond)))
	}
	return strings.Join(out, ", ")
}
