package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/bench/proc"
)

// Snapshot is what a server holds.
type Snapshot struct {
	What string `json:"what"`
	proc.Memory
	Goroutines int   `json:"goroutines"` // -1: not told
	Heap       int64 `json:"heap_bytes"` // in use, garbage included; -1: not told
	Stacks     int64 `json:"stack_bytes"`
	Slow       int64 `json:"slow_consumers"` // that the server has ended so far; -1: not told
}

// Look takes a snapshot: of the process by /proc, and of its runtime by its
// metrics.
func Look(ctx context.Context, t Target, what string) (Snapshot, error) {
	m, err := proc.ReadMemory(t.PID)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the server: %w", err)
	}
	s := Snapshot{What: what, Memory: m, Goroutines: -1, Heap: -1, Stacks: -1, Slow: -1}
	all, err := readMetrics(ctx, t)
	if err != nil {
		return s, err
	}
	for name, to := range map[string]*int64{
		"go_memstats_heap_inuse_bytes": &s.Heap, "go_memstats_stack_inuse_bytes": &s.Stacks, "gateway_slow_consumers_total": &s.Slow,
	} {
		if v, ok := all[name]; ok {
			*to = int64(v)
		}
	}
	if v, ok := all["go_goroutines"]; ok {
		s.Goroutines = int(v)
	}
	return s, nil
}

// LookAtAll takes a snapshot of each node.
func LookAtAll(ctx context.Context, t Target, what string) ([]Snapshot, error) {
	all := make([]Snapshot, 0, len(t.PIDs()))
	for i, pid := range t.PIDs() {
		node := t.turn(i)
		node.PID = pid
		s, err := Look(ctx, node, what)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// readMetrics asks a server for what it has counted.
func readMetrics(ctx context.Context, t Target) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Addr.String()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	t.authorize(req)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	defer resp.Body.Close()
	return metrics(io.LimitReader(resp.Body, 64<<20)), nil
}

// metrics reads the metrics without labels.
func metrics(r io.Reader) map[string]float64 {
	all := map[string]float64{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") || strings.Contains(name, "{") {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}
