package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
)

const (
	// estimatedGroups is what the memory of idle groups is estimated for.
	estimatedGroups = 50_000
	// registrars register groups at the same time.
	registrars = 16
)

// idleFigures is what groups without members cost.
type idleFigures struct {
	Kind      string        `json:"kind"` // idle-groups
	Groups    int           `json:"groups"`
	PerSecond float64       `json:"registered_per_second"`
	Seconds   float64       `json:"seconds"` // the processes were looked at
	Entries   float64       `json:"raft_entries_per_second"`
	Processes []idleProcess `json:"processes"`
}

// idleProcess is one node's part.
type idleProcess struct {
	PID      int     `json:"pid"`
	Before   float64 `json:"cores_before"` // kept busy without a group
	Cores    float64 `json:"cores"`        // and with all of them
	RSSEach  float64 `json:"rss_bytes_each"`
	HeapEach float64 `json:"heap_bytes_each"` // in use, garbage included
	Estimate float64 `json:"rss_bytes_of_50000"`
}

func (b *benchGroups) measureIdle(ctx context.Context, s *subject) error {
	before, err := b.lookIdle(ctx, s, "without groups")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.register(ctx, s); err != nil {
		return err
	}
	f := idleFigures{Kind: "idle-groups", Groups: b.idle, PerSecond: math.Round(float64(b.idle) / time.Since(began).Seconds())}
	if err := pause(ctx, b.quiet, s.bar, "settling"); err != nil {
		return err
	}
	after, err := b.lookIdle(ctx, s, "with groups")
	if err != nil {
		return err
	}
	f.Seconds, f.Entries = after.took.Seconds(), math.Round(10*after.entries/after.took.Seconds())/10
	for i, pid := range s.target.PIDs() {
		each := math.Round(float64(after.memory[i].RSS-before.memory[i].RSS) / float64(b.idle))
		f.Processes = append(f.Processes, idleProcess{
			PID: pid, Before: before.cores[i], Cores: after.cores[i], RSSEach: each,
			HeapEach: math.Round(float64(after.memory[i].Heap-before.memory[i].Heap) / float64(b.idle)), Estimate: each * estimatedGroups,
		})
	}
	s.bar.finish()
	return b.printIdle(f, s)
}

// idleLook is what the processes used and hold.
type idleLook struct {
	took    time.Duration
	cores   []float64
	memory  []load.Snapshot
	entries float64 // of Raft's log
}

func (b *benchGroups) lookIdle(ctx context.Context, s *subject, what string) (l idleLook, err error) {
	pids := s.target.PIDs()
	began, used := time.Now(), make([]proc.Sample, len(pids))
	for i, pid := range pids {
		if used[i], err = proc.Read(pid); err != nil {
			return l, err
		}
	}
	first, err := load.RaftEntries(ctx, s.target)
	if err != nil {
		return l, err
	}
	if err := pause(ctx, b.quiet, s.bar, what); err != nil {
		return l, err
	}
	l.took = time.Since(began)
	for i, pid := range pids {
		now, err := proc.Read(pid)
		if err != nil {
			return l, err
		}
		l.cores = append(l.cores, math.Round(1e4*now.Sub(used[i]).CPU.Seconds()/l.took.Seconds())/1e4)
	}
	last, err := load.RaftEntries(ctx, s.target)
	if err != nil {
		return l, err
	}
	l.entries = last - first
	l.memory, err = load.LookAtAll(ctx, s.target, what)
	return l, err
}

// register makes the groups, a few at a time.
func (b *benchGroups) register(ctx context.Context, s *subject) error {
	s.bar.Phase("registering groups", b.idle)
	all, ctx := errgroup.WithContext(ctx)
	var next, done atomic.Int64
	var shown sync.Mutex
	for range min(registrars, b.idle) {
		all.Go(func() error {
			for i := next.Add(1); i <= int64(b.idle); i = next.Add(1) {
				if _, err := s.client.RegisterGroup(ctx, s.topic, client.GroupSettings{Group: "idle-" + strconv.FormatInt(i, 10)}); err != nil {
					return err
				}
				if n := done.Add(1); n%50 == 0 && shown.TryLock() {
					s.bar.Step(int(n))
					shown.Unlock()
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (b *benchGroups) printIdle(f idleFigures, s *subject) error {
	if !b.table() {
		return b.line(f)
	}
	fmt.Fprintf(b.out, "groups: %d without members on a topic of one partition, registered at %.0f a second; looked at for %.0f s: %.1f Raft entries a second\n", f.Groups, f.PerSecond, f.Seconds, f.Entries)
	table := [][]string{{"PROCESS", "CORE % BEFORE", "CORE %", "BYTES EACH", "HEAP EACH", "MB OF 50,000"}}
	for _, p := range f.Processes {
		table = append(table, []string{
			strconv.Itoa(p.PID), fmt.Sprintf("%.2f", 100*p.Before), fmt.Sprintf("%.2f", 100*p.Cores), fmt.Sprintf("%.0f", p.RSSEach), fmt.Sprintf("%.0f", p.HeapEach), fmt.Sprintf("%.0f", p.Estimate/1e6),
		})
	}
	if err := rows(b.out, table); err != nil {
		return err
	}
	for _, text := range s.remarks {
		fmt.Fprintln(b.out, visible(text))
	}
	return nil
}
