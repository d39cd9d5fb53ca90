package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
)

// benchRestart are the flags of bench restart.
type benchRestart struct {
	*bench
	transport   string
	subscribers int
	rate        float64
	flow        time.Duration
	kill        bool
}

func newBenchRestart(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Measure how subscribers come back after a restart",
		Long: `Restart starts a server, connects subscribers, lets a publisher go on, ends the server
by SIGTERM and starts it again at the same address and with the same data. It prints
how many subscribers came back in each tenth of a second, from the signal on.

Subscribers do what the protocol tells clients to. One that hears "closing" waits as
long as that says; one that is cut off waits a random time below a bound that doubles
with each try; one that is refused waits as long as the refusal says, and a random
time more. All resume where they were. The publisher repeats a message until it is
kept. Lost and repeated deliveries are counted, and make the exit code 1.

With --kill the server is ended by SIGKILL, and nobody hears "closing".`,
		Example: `  tidewire bench restart --spawn --subscribers 10000
  tidewire bench restart --spawn --subscribers 10000 --transport sse
  tidewire bench restart --spawn --subscribers 10000 --kill`,
	}
	b := &benchRestart{bench: addBenchSpawned(cmd, p)}
	b.transportOf(cmd, &b.transport, "how subscribers receive: ws or sse", load.WebSocket, load.SSE)
	b.number(cmd, &b.subscribers, "subscribers", 1000, 1, maxBenchConnections, "connections that come back")
	b.addBytes(cmd, 256)
	b.perSecond(cmd, &b.rate, "rate", 1, "messages a second")
	b.span(cmd, &b.flow, "flow", 3*time.Second, 100*time.Millisecond, "how long messages flow before the restart, and after all are back")
	cmd.Flags().BoolVar(&b.kill, "kill", false, "end the server by SIGKILL")
	b.serveArgs = nil // how a server takes a storm is what is looked at
	b.runs(cmd, b)
	return cmd
}

func (b *benchRestart) connections() int { return b.subscribers }

func (b *benchRestart) settle() error {
	var faults []error
	if !b.spawn {
		faults = append(faults, errors.New("the server is ended and started again: let --spawn start one for it"))
	}
	if b.rate == 0 {
		faults = append(faults, errors.New("--rate: what comes through a restart is seen by messages: more than 0 a second"))
	}
	return errors.Join(faults...)
}

// restartFigures is what came of it.
type restartFigures struct {
	Kind        string `json:"kind"` // restart
	Transport   string `json:"transport"`
	Subscribers int    `json:"subscribers"`
	Kill        bool   `json:"kill"`
	Stop        int64  `json:"stop_ms"` // until the server had ended
	load.Returned
}

func (b *benchRestart) measure(ctx context.Context, s *subject) error {
	f := restartFigures{Kind: "restart", Transport: b.transport, Subscribers: b.subscribers, Kill: b.kill}
	w := load.Restart{Target: s.target, Topic: s.topic, Transport: b.transport, Subscribers: b.subscribers, Bytes: b.bytes, Rate: b.rate, Flow: b.flow}
	out, err := w.Run(ctx, s.bar, func(ctx context.Context) error {
		began := time.Now()
		stopped, err := s.restart(ctx, b.kill)
		f.Stop = stopped.Sub(began).Milliseconds()
		return err
	})
	if err != nil {
		return err
	}
	f.Returned = out
	s.bar.finish()
	if err := b.print(f); err != nil {
		return err
	}
	if out.Back != b.subscribers || out.Lost+out.Duplicates+out.Gaps+out.Outstanding > 0 {
		return &exitError{exitFailed, errors.New("the subscribers did not come back whole")}
	}
	return nil
}

func (b *benchRestart) print(f restartFigures) error {
	if !b.table() {
		return b.line(f)
	}
	how := "SIGTERM"
	if f.Kill {
		how = "SIGKILL"
	}
	fmt.Fprintf(b.out, "restart by %s: %s over %s; the server had ended after %d ms and served again after %d ms\n", how, counted(f.Subscribers, "subscriber"), f.Transport, f.Stop, f.Down)
	for _, line := range histogram(f.Buckets, f.Subscribers) {
		fmt.Fprintln(b.out, line)
	}
	refused := fmt.Sprintf("%d refused", f.Refused)
	if f.RefusedTold > 0 {
		refused += fmt.Sprintf(" (%d of those told when to come back)", f.RefusedTold)
	}
	fmt.Fprintf(b.out, "%d are back after %d ms; the fullest 100 ms have %.1f %% of them; %d were told when to come back; %s, %d of them unanswered and %s\n",
		f.Back, f.AllBack, 100*f.Largest, f.Told, counted(int(f.Attempts), "attempt"), f.Unreachable, refused)
	if l := f.Connect; l != nil {
		fmt.Fprintf(b.out, "from attempt to subscription: p50 %s µs, p99 %s µs, at most %s µs\n", micros(l.P50), micros(l.P99), micros(l.Max))
	}
	_, err := fmt.Fprintf(b.out, "%s for each: %d deliveries lost, %d repeated, %d gaps told of, %d outstanding\n", counted(int(f.Published), "message"), f.Lost, f.Duplicates, f.Gaps, f.Outstanding)
	return err
}

// histogram draws how many came back in each tenth of a second. A long stretch of
// none is one line that says so.
func histogram(buckets []int, of int) (lines []string) {
	const width, mostEmpty = 50, 4
	largest := max(1, slices.Max(append([]int{0}, buckets...)))
	for i := 0; i < len(buckets); i++ {
		end := i
		for end < len(buckets) && buckets[end] == 0 {
			end++
		}
		if end-i > mostEmpty {
			lines = append(lines, fmt.Sprintf("%6.1f s to %.1f s: nobody", float64(i)/10, float64(end)/10))
			i = end - 1
			continue
		}
		n := buckets[i]
		bar := strings.Repeat("#", n*width/largest)
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%6.1f s %6d %5.1f %% %s", float64(i)/10, n, 100*float64(n)/float64(max(1, of)), bar), " "))
	}
	return lines
}
