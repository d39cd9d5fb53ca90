package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
)

// benchConnections are the flags of bench connections.
type benchConnections struct {
	*bench
	transport string
	count     int
	ownKeys   bool
	quiet     time.Duration
	churn     int
}

func newBenchConnections(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Measure what idle connections cost, and what is left of them",
		Long: `Connections opens connections with one subscription each, lets the server settle, and
reads what each of them adds to its memory; then it cuts them and reads again what is
left. The server's process has to be known: --spawn, or --server-pid.

With --churn it opens and abruptly cuts all of them so many times, and compares
memory, goroutines and open files after the last round with those before the first,
and with those after the first: what a server keeps for the next round is no leak.

Of the memory that the process has, its own is what is not its binary's: code that is
used for the first time comes in from the file, and stays. Heap in use has garbage in
it, and holes.

A runtime gives memory back late: the longer --settle, the nearer the figure is to
what is really in use. Two minutes and a half are enough for a collection by the
clock.`,
		Example: `  tidewire bench connections --spawn --connections 15000 --settle 30s
  tidewire bench connections --spawn --connections 15000 --transport sse-h2c
  tidewire bench connections --spawn --connections 5000 --churn 20`,
	}
	b := &benchConnections{bench: addBench(cmd, p)}
	b.transportOf(cmd, &b.transport, "ws, sse (HTTP/1.1) or sse-h2c (HTTP/2 in clear text)", load.WebSocket, load.SSE, load.SSEH2)
	b.number(cmd, &b.count, "connections", 1000, 1, maxBenchConnections, "how many connections")
	cmd.Flags().BoolVar(&b.ownKeys, "own-keys", false, "each subscribes to a key of its own, not to the whole topic")
	b.span(cmd, &b.quiet, "settle", 15*time.Second, 0, "how long the server is left alone before it is looked at")
	b.number(cmd, &b.churn, "churn", 0, 0, 10_000, "open and cut all of them in so many rounds; 0: open them once")
	b.runs(cmd, b)
	return cmd
}

func (b *benchConnections) connections() int { return b.count }

func (b *benchConnections) settle() error { return b.processKnown("") }

// connectionFigures is what came of it.
type connectionFigures struct {
	Kind          string          `json:"kind"` // connections
	Transport     string          `json:"transport"`
	Connections   int             `json:"connections"`
	Rounds        int             `json:"rounds"`
	PerSecond     float64         `json:"connects_per_second"` // the best round
	CPU           float64         `json:"connect_cpu_us"`      // of the server, each, in that round
	RSSEach       *float64        `json:"rss_bytes_each"`      // idle, settled; null with --churn, as the next two
	PeakEach      *float64        `json:"rss_peak_bytes_each"`
	IdleCores     *float64        `json:"idle_cores"` // the server kept busy while all stood idle
	EndedByServer int64           `json:"ended_by_server"`
	Snapshots     []load.Snapshot `json:"snapshots"`
}

func (b *benchConnections) measure(ctx context.Context, s *subject) error {
	w := load.Connections{Target: s.target, Topic: s.topic, Transport: b.transport, Count: b.count, OwnKeys: b.ownKeys}
	f := connectionFigures{Kind: "connections", Transport: b.transport, Connections: b.count, Rounds: max(1, b.churn)}
	look := func(what string, settle time.Duration) error {
		if err := pause(ctx, settle, s.bar, "settling"); err != nil {
			return err
		}
		snap, err := load.Look(ctx, s.target, what)
		f.Snapshots = append(f.Snapshots, snap)
		return err
	}
	if err := look("before", min(b.quiet, 2*time.Second)); err != nil {
		return err
	}
	var why error
	for round := range f.Rounds {
		held, err := b.connect(ctx, s, w, &f)
		if err != nil {
			return err
		}
		if b.churn == 0 {
			if err := b.idle(s, &f, look); err != nil {
				held.Cut()
				return err
			}
		}
		held.Cut()
		n, reason := held.Gone()
		if f.EndedByServer += n; why == nil {
			why = reason
		}
		if round == 0 && b.churn > 0 {
			if err := look("after the first round", b.quiet); err != nil {
				return err
			}
		}
	}
	if err := look("after all are cut", b.quiet); err != nil {
		return err
	}
	s.bar.finish()
	if err := b.print(f, s); err != nil {
		return err
	}
	if f.EndedByServer > 0 {
		return &exitError{exitFailed, fmt.Errorf("%s ended by themselves, the first by this: %w", counted(int(f.EndedByServer), "connection"), why)}
	}
	return nil
}

// connect opens all connections and notes how quick that was.
func (b *benchConnections) connect(ctx context.Context, s *subject, w load.Connections, f *connectionFigures) (*load.Held, error) {
	before, err := proc.Read(s.target.PID)
	if err != nil {
		return nil, err
	}
	held, err := w.Open(ctx, s.bar)
	if err != nil {
		return nil, err
	}
	after, err := proc.Read(s.target.PID)
	if err != nil {
		held.Cut()
		return nil, err
	}
	if v := float64(b.count) / held.Took.Seconds(); v > f.PerSecond {
		f.PerSecond, f.CPU = math.Round(v), math.Round(float64(after.Sub(before).CPU.Microseconds())/float64(b.count))
	}
	return held, nil
}

// idle looks at the server while all connections stand there.
func (b *benchConnections) idle(s *subject, f *connectionFigures, look func(string, time.Duration) error) error {
	before, err := proc.Read(s.target.PID)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := look("all open", b.quiet); err != nil {
		return err
	}
	after, err := proc.Read(s.target.PID)
	if err != nil {
		return err
	}
	first, now := f.Snapshots[0], f.Snapshots[len(f.Snapshots)-1]
	cores := math.Round(1000*after.Sub(before).CPU.Seconds()/time.Since(began).Seconds()) / 1000
	each := math.Round(float64(now.RSS-first.RSS) / float64(b.count))
	peak := math.Round(float64(now.Peak-first.RSS) / float64(b.count))
	f.IdleCores, f.RSSEach, f.PeakEach = &cores, &each, &peak
	return nil
}

func (b *benchConnections) print(f connectionFigures, s *subject) error {
	if !b.table() {
		return b.line(f)
	}
	fmt.Fprintf(b.out, "connections: %d over %s, %s: %.0f connects/s, %.0f µs of the server each\n", f.Connections, f.Transport, counted(f.Rounds, "round"), f.PerSecond, f.CPU)
	if f.RSSEach != nil {
		fmt.Fprintf(b.out, "idle: %.0f bytes of the server's memory each after %s (peak %.0f), %.3f cores kept busy\n", *f.RSSEach, b.quiet, *f.PeakEach, *f.IdleCores)
	}
	table := [][]string{{"WHEN", "RSS kB", "OWN kB", "PEAK kB", "HEAP kB", "STACKS kB", "GOROUTINES", "FILES"}}
	for _, x := range f.Snapshots {
		table = append(table, []string{
			x.What, kilobytes(x.RSS), kilobytes(x.Anonymous), kilobytes(x.Peak), kilobytes(x.Heap), kilobytes(x.Stacks), known(x.Goroutines), known(x.Files),
		})
	}
	if err := rows(b.out, table); err != nil {
		return err
	}
	last := f.Snapshots[len(f.Snapshots)-1]
	for _, x := range f.Snapshots[:len(f.Snapshots)-1] {
		if b.churn > 0 {
			fmt.Fprintf(b.out, "left since %s: memory %s, its own %s, heap in use %s, goroutines %s, files %s\n", x.What,
				growth(x.RSS, last.RSS), growth(x.Anonymous, last.Anonymous), growth(x.Heap, last.Heap), growth(int64(x.Goroutines), int64(last.Goroutines)), growth(int64(x.Files), int64(last.Files)))
		}
	}
	for _, text := range s.remarks {
		fmt.Fprintln(b.out, text)
	}
	return nil
}

func growth(before, after int64) string {
	if before <= 0 || after < 0 {
		return "not known"
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(after)/float64(before)-1))
}

func kilobytes(n int64) string { return known(int(n >> 10)) }

func known(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// pause waits, and says so.
func pause(ctx context.Context, d time.Duration, bar *benchProgress, what string) error {
	const step = 100 * time.Millisecond
	bar.Phase(what, int(d/step))
	tick := time.NewTicker(step)
	defer tick.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return nil
		case now := <-tick.C:
			bar.Step(int(now.Sub(began) / step))
		}
	}
}
