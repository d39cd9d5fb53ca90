package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// leasedAt is where a record is.
type leasedAt struct {
	partition int
	offset    int64
}

// ledgerOfGroup is what members saw of a group's records, and what they were told.
type ledgerOfGroup struct {
	mu        sync.Mutex
	delivered map[leasedAt]int
	acked     map[leasedAt]bool
	twice     []string // given out after an acknowledgement was answered
}

func (l *ledgerOfGroup) gave(p leasedAt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered[p]++; l.acked[p] {
		l.twice = append(l.twice, fmt.Sprint(p))
	}
}

func (l *ledgerOfGroup) done(p leasedAt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[p] = true
}

// groupMember works for a group over WebSockets until ctx ends: at one gateway after the
// other, always under its own name.
type groupMember struct {
	name   string
	ledger *ledgerOfGroup
	to     func(try int) string
	lives  int
}

func (m *groupMember) run(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		m.serve(ctx, m.to(try))
		pause(ctx, 50*time.Millisecond)
	}
}

// serve is one connection.
func (m *groupMember) serve(ctx context.Context, address string) {
	dialed, cancel := context.WithTimeout(ctx, 2*time.Second)
	ws, err := client.DialWS(dialed, address, "")
	cancel()
	if err != nil {
		return
	}
	defer ws.Drop()
	if err := ws.Send(ctx, map[string]any{"op": "join", "id": 1, "topic": "work", "group": "g", "member": m.name}); err != nil {
		return
	}
	asked := map[int64]leasedAt{}
	for id := int64(1); ; {
		// A connection to a node that is gone without a word ends by the pings that it
		// does not answer, which takes a while: others are there.
		heard, cancel := context.WithTimeout(ctx, 15*time.Second)
		f, err := ws.Next(heard)
		cancel()
		if err != nil {
			return
		}
		switch f.Op {
		case "joined":
			m.lives++
		case "message":
			p := leasedAt{f.Message.Partition, f.Message.Offset}
			m.ledger.gave(p)
			id++
			asked[id] = p
			if err := ws.Send(ctx, map[string]any{"op": "ack", "id": id, "sub": f.Sub, "partition": p.partition, "offset": p.offset}); err != nil {
				return
			}
		case "acked":
			var a struct{ Stale []any }
			if json.Unmarshal(f.Raw, &a) == nil && len(a.Stale) == 0 {
				m.ledger.done(asked[f.ID])
			}
			delete(asked, f.ID)
		case "error":
			if f.ID <= 1 { // it could not join, or its life is over
				return
			}
		}
	}
}

// TestAGroupOutlivesItsNodes kills nodes under the hands of a group: every record is
// processed, and none is given out again whose acknowledgement was answered.
func TestAGroupOutlivesItsNodes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exclusive", "shared"} {
		t.Run(mode, func(t *testing.T) {
			busy(t)
			c := harness.StartCluster(t, harness.ClusterOptions{})
			api := c.API()
			api.CreateTopic(t, "work", `"partitions":6,"replicas":3`)
			api.Must(t, 201, "POST", "/groups/work/register", "application/json", `{"group":"g","mode":"`+mode+`","session":"4s","lease":"5s","backoff":"100ms","max_deliveries":100}`)
			ledger := &ledgerOfGroup{delivered: map[leasedAt]int{}, acked: map[leasedAt]bool{}}
			ctx, cancel := context.WithCancel(t.Context())
			var working sync.WaitGroup
			defer func() { cancel(); working.Wait() }()
			members := make([]*groupMember, 4)
			for i := range members {
				members[i] = &groupMember{name: fmt.Sprint("m", i), ledger: ledger, to: func(try int) string {
					return strings.TrimPrefix(c.Members[(i+try)%len(c.Members)].URL, "http://")
				}}
				working.Go(func() { members[i].run(ctx) })
			}
			// A publisher that repeats what was not kept, by one key a record.
			var published int
			nodes := map[string]*client.API{}
			node := func(m *harness.Member) *client.API {
				if a := nodes[m.URL]; a != nil {
					return a
				}
				nodes[m.URL] = client.New(m.URL)
				return nodes[m.URL]
			}
			publish := func(until time.Time) {
				for ; time.Now().Before(until); published++ {
					for try := 0; ; try++ {
						m := c.Members[(published+try)%len(c.Members)]
						limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						ans, err := node(m).Do(limited, "POST", fmt.Sprintf("/topics/work?partition=%d", published%6), "application/json", fmt.Sprint(published), "Idempotency-Key", fmt.Sprint("r", published))
						cancel()
						if err == nil && (ans.Status == 201 || ans.Status == 200) {
							break
						}
						if time.Since(until) > patience {
							t.Fatalf("record %d is not kept: %+v, %v", published, ans, err)
						}
					}
				}
			}
			publish(time.Now().Add(2 * time.Second))
			for _, m := range c.Members[:2] {
				m.Kill()
				publish(time.Now().Add(3 * time.Second))
				c.Run(m)
				publish(time.Now().Add(2 * time.Second))
			}
			standing := func() (lag, dead int64, text string) {
				var d struct {
					Partitions []struct{ Lag, Dead, End *int64 }
				}
				limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				ans, err := c.API().Do(limited, "GET", "/groups/work/g", "", "")
				if err != nil || json.Unmarshal([]byte(ans.Body), &d) != nil {
					return -1, 0, fmt.Sprint(ans, err)
				}
				for _, p := range d.Partitions {
					if p.Lag == nil || p.Dead == nil {
						return -1, 0, ans.Body
					}
					lag, dead = lag+*p.Lag, dead+*p.Dead
				}
				return lag, dead, ans.Body
			}
			var dead int64
			harness.Await(t, patience, "all records processed", func() bool {
				lag, died, text := standing()
				if dead = died; lag != 0 {
					pause(t.Context(), 200*time.Millisecond)
					t.Log(text)
				}
				return lag == 0
			})
			cancel()
			working.Wait()
			ledger.mu.Lock()
			defer ledger.mu.Unlock()
			if dead != 0 || len(ledger.delivered) < published {
				t.Errorf("%d dead; %d of %d records were delivered", dead, len(ledger.delivered), published)
			}
			if len(ledger.twice) > 0 {
				t.Errorf("given out again after the acknowledgement was answered: %v", ledger.twice)
			}
			lives := 0
			for _, m := range members {
				lives += m.lives
			}
			again := 0
			for n := range maps.Values(ledger.delivered) {
				again += n - 1
			}
			t.Logf("%s: %d records, %d acknowledged by an answer, %d deliveries again, %d lives of %d members", mode, published, len(slices.Collect(maps.Keys(ledger.acked))), again, lives, len(members))
		})
	}
}
