package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestAStormIsRefused: more connections than the node takes in a second are refused
// before the upgrade and before the stream, told when to come back, and taken in
// then. Plain calls go on meanwhile.
func TestAStormIsRefused(t *testing.T) {
	t.Parallel()
	const rate = 4
	n := harness.Start(t, harness.Options{Args: []string{"--max-connection-rate", strconv.Itoa(rate)}})
	client.New(n.URL).CreateTopic(t, "crowded", "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	open := map[string]func() error{
		"websocket": func() error {
			w, err := client.UpgradeWS(ctx, n.Addr, "", nil)
			if err == nil {
				t.Cleanup(w.Drop)
			}
			return err
		},
		"sse": func() error {
			req, err := http.NewRequestWithContext(ctx, "GET", n.URL+"/topics/crowded/events", nil)
			if err != nil {
				return err
			}
			s, err := client.Stream(req)
			if err == nil {
				t.Cleanup(s.Close)
			}
			return err
		},
	}
	in, refused, longest, began := 0, map[string]int{}, time.Duration(0), time.Now()
	for range 10 * rate {
		for transport, try := range open {
			err := try()
			if err == nil {
				in++
				continue
			}
			var r *client.Refusal
			if !errors.As(err, &r) {
				t.Fatalf("%s: %v", transport, err)
			}
			seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
			if r.Status != 503 || r.Problem.Status != 503 || r.Code != "limit" || r.Header.Get("Content-Type") != "application/problem+json" || err != nil || seconds < 1 {
				t.Fatalf("%s: %d %v %s", transport, r.Status, r.Header, r.Body)
			}
			refused[transport]++
			longest = max(longest, time.Duration(seconds)*time.Second)
		}
	}
	// A second's worth at once, and what became free while the storm lasted.
	most := int(rate*(1+time.Since(began).Seconds())) + 1
	if in < rate || in > most || refused["websocket"] == 0 || refused["sse"] == 0 {
		t.Errorf("%d were let in, %d at most should be; refused were %v", in, most, refused)
	}
	if longest < 5*time.Second {
		t.Errorf("all are to come back within %s", longest)
	}
	if got, want := n.Metric("gateway_connections_refused_total", `reason="max_connection_rate"`), float64(refused["websocket"]+refused["sse"]); got != want {
		t.Errorf("the metric counts %v, want %v", got, want)
	}
	stillServes(t, n, "crowded")
	for transport, try := range open {
		harness.Await(t, patience, transport+" is let in", func() bool { return try() == nil })
	}
}
