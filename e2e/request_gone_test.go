package e2e_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// abandon asks so many times over one WebSocket, waits until all is kept, and vanishes.
// Every second request has a correlation id of its own, and is kept for a repeat until its
// deadline, which a slow machine may see before all is kept.
func abandon(ctx context.Context, addr, topic, name string, n int, timeout time.Duration) error {
	ws, err := client.DialWS(ctx, addr, "")
	if err != nil {
		return err
	}
	defer ws.Drop()
	for i := 1; i <= n; i++ {
		named := `"timeout":"1m"`
		if i%2 == 0 {
			named = fmt.Sprintf(`"timeout":%q,"correlation":"%s-%d"`, timeout, name, i)
		}
		if err := ws.Send(ctx, fmt.Sprintf(`{"op":"request","id":%d,"topic":%q,"value":{"n":%d},%s}`, i, topic, i, named)); err != nil {
			return err
		}
	}
	for heard := map[int64]bool{}; len(heard) < n; {
		f, err := ws.Next(ctx)
		if err != nil {
			return err
		}
		if f.Op != "accepted" && f.Code != "reply-timeout" && f.Code != "unknown-outcome" { // its time was over before its leader had answered
			return fmt.Errorf("a request is answered %s", f.Raw)
		}
		heard[f.ID] = true
	}
	return nil
}

// abandonHTTP asks over HTTP and leaves while it waits.
func abandonHTTP(ctx context.Context, url, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	api := client.New(url)
	defer api.HTTP.CloseIdleConnections()
	if _, err := api.Ask(ctx, topic, "", `{"n":0}`, time.Minute); err == nil || ctx.Err() == nil {
		return fmt.Errorf("a request that nobody answers ended by itself: %v", err)
	}
	return nil
}

// live is what a node's heap holds without its garbage: the least it says over two
// collections, for which the questions give enough cause.
func live(t *testing.T, n *harness.Node) float64 {
	least, begun := math.MaxFloat64, n.Metric("go_gc_duration_seconds_count")
	harness.Await(t, patience, "the heap is collected twice", func() bool {
		least = min(least, n.Metric("go_memstats_heap_alloc_bytes"))
		return n.Metric("go_gc_duration_seconds_count") >= begun+2
	})
	return least
}

// TestCallersThatGoAwayLeaveNothing asks 10,000 times and is gone before a reply.
func TestCallersThatGoAwayLeaveNothing(t *testing.T) {
	t.Parallel()
	const (
		connections = 20
		each        = 475
		posts       = 500
		timeout     = 3 * time.Second
	)
	n := harness.Start(t, harness.Options{Args: []string{"--log-level", "error"}})
	api := client.New(n.URL)
	api.CreateTopic(t, "left", `"partitions":2,"idempotency_window":"4s","retention":{"bytes":67108864}`)
	s := takeSeat(t, api, "left")
	round := func(number int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var all sync.WaitGroup
		for i := range connections {
			all.Go(func() {
				if err := abandon(ctx, n.Addr, "left", fmt.Sprintf("r%d-%d", number, i), each, timeout); err != nil {
					t.Error(err)
				}
				for range posts / connections {
					if err := abandonHTTP(ctx, n.URL, "left"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		began, starved := time.Now(), harness.Starved(n)
		harness.Await(t, patience, "nobody waits, and nothing is kept", func() bool {
			return n.Metric("gateway_requests_pending") == 0 && n.Metric("gateway_inboxes") == 0 && n.Metric("gateway_connections") == 0
		})
		if took := time.Since(began); took > timeout+slack(time.Second)+starved() {
			t.Errorf("it takes %s until the last is forgotten", took)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	round(0) // pools and caches fill up
	api.HTTP.CloseIdleConnections()
	before, heap := figuresOf(n), live(t, n)
	for i := range 2 {
		round(i + 1)
	}
	api.HTTP.CloseIdleConnections()
	var after figures
	harness.Await(t, patience, "goroutines and files are back", func() bool {
		after = figuresOf(n)
		return after.goroutines <= before.goroutines*1.1+2 && after.files <= before.files*1.1+2
	})
	grown := live(t, n) - heap
	t.Logf("20,000 callers gone: goroutines %.0f, before %.0f; files %.0f, before %.0f; the heap grew by %.0f kB to %.1f MB", after.goroutines, before.goroutines, after.files, before.files, grown/1e3, (heap+grown)/1e6)
	if grown > 3e6 { // 150 bytes for each would be as much: less than any of them took
		t.Errorf("the heap grew by %.1f MB", grown/1e6)
	}
	if m := s.take(); m.Inbox() == "" {
		t.Errorf("the first of them is delivered as %+v", m)
	}
	if log := n.Log(); log != "" {
		t.Errorf("callers that leave are no errors of the node:\n%s", log)
	}
}
