package publish

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/rpc"
)

// slowLeader keeps so many bytes a second, one batch after the other.
type slowLeader struct {
	mu   sync.Mutex
	rate float64
	free time.Time // when it is done with what it has
}

func (l *slowLeader) Append(req rpc.Append, done func(rpc.Appended)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(len(req.Batch)) / l.rate * float64(time.Second)))
	time.AfterFunc(time.Until(l.free), func() {
		var a rpc.Appended
		for it := req.Batch.Entries(); it.Next(); {
			a.Records = append(a.Records, rpc.RecordResult{Timestamp: 1})
		}
		done(a)
	})
}

// Clients that stream as fast as they are read from, to leaders with a slow
// disk: they are read from no faster than that, and no record is refused or
// left with an unknown fate because those before it took its time.
func TestSlowLeadersSlowTheirClients(t *testing.T) {
	for _, rate := range []float64{128 << 10, 512 << 10} {
		synctest.Test(t, func(t *testing.T) {
			w := orders()
			w.snapshot.Topics["orders"].Settings.MaxMessageBytes = 64 << 10
			p := New(Config{Topology: w, Leader: &slowLeader{rate: rate}, InFlightBytes: 8 << 20})
			value := strings.Repeat("v", 8<<10)
			// The first window may be too much for a leader that nobody knew to be
			// slow: what counts is what happens after that.
			settled := time.Now().Add(30 * time.Second)
			end := settled.Add(time.Minute)
			var mu sync.Mutex
			kept, longest := 0, time.Duration(0)
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					for began := time.Now(); began.Before(end); began = time.Now() {
						p.Publish(Request{Topic: "orders", Record: text(value)}, func(r Result) {
							mu.Lock()
							defer mu.Unlock()
							switch {
							case began.Before(settled):
							case r.Err != nil:
								t.Errorf("at %.0f bytes/s: %v", rate, r.Err)
							default:
								kept++
								longest = max(longest, time.Since(began))
							}
						})
					}
				})
			}
			clients.Wait()
			if err := p.Drain(context.Background()); err != nil {
				t.Fatal(err)
			}
			if want := int(rate*60) / len(value) * 9 / 10; kept < want {
				t.Errorf("at %.0f bytes/s: %d kept, %d could have been", rate, kept, want)
			}
			if longest > 4*time.Second {
				t.Errorf("at %.0f bytes/s: one record took %s", rate, longest)
			}
			t.Logf("at %.0f bytes/s: %d records of %d KiB kept in a minute, longest wait %s", rate, kept, len(value)>>10, longest)
		})
	}
}
