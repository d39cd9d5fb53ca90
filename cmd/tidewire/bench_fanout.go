package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/load"
)

// benchFanout are the flags of bench fanout and bench latency.
type benchFanout struct {
	*bench
	name        string
	transport   string
	subscribers int
	inFlight    int
	rate        float64
	ownKeys     bool
	acks        string
	stalled     int
	slow        int
}

func newBenchFanout(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Measure one publisher and many subscribers",
		Long: `Fanout measures how many deliveries a second a server makes of one publisher's
messages to many subscribers, and what each costs it.

It is a closed loop: --in-flight messages are under way, and the next leaves when
all deliveries of one are in. With 1 nothing can be written together; with more,
what waits for a subscriber goes to it in one piece. With --rate it is an open
loop instead, and latencies count from the time the schedule names.

Every delivery is checked against the number of its message: lost and repeated
ones are counted, and make the exit code 1.

The floor of a fan-out is a bare server that writes one encoded frame, with all
messages that are in flight, to as many subscribers: the best run is set beside it.

With --stalled or --slow there are subscribers beside that do not keep up, and each
run is measured twice, without and with them: they must not slow the others.

With --own-keys each subscriber reads a key of its own and each message has one
subscriber. The same load with one subscriber on one key is measured before, to
compare what a message costs.`,
		Example: `  tidewire bench fanout --spawn --subscribers 10000
  tidewire bench fanout --spawn --subscribers 10000 --in-flight 32
  tidewire bench fanout --spawn --subscribers 10000 --own-keys --in-flight 8
  tidewire bench fanout --spawn --subscribers 1000 --rate 50 --stalled 1 --duration 15s
  tidewire bench fanout --spawn --transport sse --subscribers 1000 --rate 50`,
	}
	b := &benchFanout{bench: addBench(cmd, p), name: "fanout"}
	b.addRuns(cmd, 256)
	b.transportOf(cmd, &b.transport, "how subscribers receive: ws or sse", load.WebSocket, load.SSE)
	b.number(cmd, &b.subscribers, "subscribers", 1000, 1, maxBenchConnections, "connections that receive")
	b.number(cmd, &b.inFlight, "in-flight", 1, 1, 100_000, "messages under way")
	b.perSecond(cmd, &b.rate, "rate", 0, "messages a second; 0: as --in-flight lets them")
	cmd.Flags().BoolVar(&b.ownKeys, "own-keys", false, "each subscriber reads a key of its own")
	b.number(cmd, &b.stalled, "stalled", 0, 0, maxBenchConnections, "further subscribers that read nothing; each run is then measured without and with them")
	b.number(cmd, &b.slow, "slow", 0, 0, maxBenchConnections, "further subscribers that read a hundredth of what there is; likewise")
	b.acksOf(cmd, &b.acks, publisherAcks)
	b.runs(cmd, b)
	exclude(cmd, "rate", "in-flight")
	exclude(cmd, "own-keys", "stalled")
	exclude(cmd, "own-keys", "slow")
	return cmd
}

func newBenchLatency(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure the way of a message from publisher to subscriber",
		Long: `Latency measures how long a message takes from its publisher to a subscriber. It is
published over WebSocket and received over WebSocket or SSE, both by this process,
so there is one clock.

It is an open loop: messages leave at --rate by a schedule, and a latency counts
from the time the schedule names. LATE is how late the load generator itself was,
which is part of the latency.`,
		Example: `  tidewire bench latency --spawn --rate 1000
  tidewire bench latency --spawn --rate 10000 --duration 10s
  tidewire bench latency --transport sse`,
	}
	b := &benchFanout{bench: addBench(cmd, p), name: "latency", inFlight: 1}
	b.addRuns(cmd, 256)
	b.transportOf(cmd, &b.transport, "how messages are received: ws or sse", load.WebSocket, load.SSE)
	b.perSecond(cmd, &b.rate, "rate", 1000, "messages a second")
	b.number(cmd, &b.subscribers, "subscribers", 1, 1, maxBenchConnections, "connections that receive each message")
	b.acksOf(cmd, &b.acks, publisherAcks)
	b.runs(cmd, b)
	return cmd
}

const publisherAcks = "what the publisher asks for: all, leader or none"

func (b *benchFanout) connections() int { return b.subscribers + b.stalled + b.slow + 1 }

func (b *benchFanout) settle() error {
	var faults []error
	if b.name == "latency" && b.rate == 0 {
		faults = append(faults, errors.New("--rate: a latency is measured at a rate of more than 0"))
	}
	if b.partitions != 1 && !b.ownKeys {
		faults = append(faults, fmt.Errorf("--partitions: what all subscribers read comes in order from one partition, not %d", b.partitions))
	}
	return errors.Join(faults...)
}

func (b *benchFanout) measure(ctx context.Context, s *subject) error {
	if !b.ownKeys && s.partitions != 1 {
		return usagef("--topic: what all subscribers read comes in order from one partition; %s has %d", s.topic, s.partitions)
	}
	records := load.Records{Topic: s.topic, Bytes: b.bytes, Acks: b.acks}
	f := load.Fanout{
		Target: s.target, Records: records, Transport: b.transport, Subscribers: b.subscribers, OwnKeys: b.ownKeys,
		Window: b.inFlight, Rate: b.rate, Plan: b.plan(), Stalled: b.stalled, Slow: b.slow,
	}
	echo := load.Publish{Transport: load.WebSocket, Publishers: b.subscribers, Window: 1, Records: records}
	if b.rate > 0 && b.subscribers == 1 {
		echo.Rate, echo.Window = b.rate, 1000
	}
	name := "websocket echo"
	if b.rate > 0 && echo.Rate == 0 {
		name += ", closed loop" // an echo answers one connection, a message many: there is no common rate
	}
	var bare *floorFigure
	var more []func() (floorFigure, error)
	if !b.ownKeys {
		more = append(more, func() (floorFigure, error) {
			x, err := b.floorFanout(ctx, s, f)
			bare = &x
			return x, err
		})
	}
	if err := b.floors(ctx, s, b.inFlight, name, echo, more...); err != nil {
		return err
	}
	if !b.ownKeys {
		out, err := b.one(ctx, s, f)
		if err == nil && bare != nil {
			err = b.against(*bare, out)
		}
		return err
	}
	f.Subscribers = 1
	one, err := b.one(ctx, s, f)
	if err != nil {
		return err
	}
	f.Subscribers = b.subscribers
	many, err := b.one(ctx, s, f)
	if err != nil {
		return err
	}
	return b.compare(one, many)
}

// one measures one fan-out and prints it.
func (b *benchFanout) one(ctx context.Context, s *subject, f load.Fanout) (load.Outcome, error) {
	out, err := f.Run(ctx, s.bar)
	if err != nil {
		return out, err
	}
	settings := []setting{{"nodes", b.nodes}, {"transport", f.Transport}, {"subscribers", f.Subscribers}, {"bytes", b.bytes}, {"acks", b.acks}}
	if f.Rate > 0 {
		settings = append(settings, setting{"rate", f.Rate})
	} else {
		settings = append(settings, setting{"in_flight", f.Window})
	}
	if f.OwnKeys {
		settings = append(settings, setting{"keys", f.Subscribers}, setting{"partitions", s.partitions})
	}
	if err := b.report(b.name, settings, out, f.Wanted(), s); err != nil || len(out.Beside) == 0 {
		return out, err
	}
	return out, b.beside(settings, out, f.Wanted(), s)
}

// beside prints the runs with subscribers that do not keep up, and what they did
// to the others.
func (b *benchFanout) beside(settings []setting, out load.Outcome, wanted float64, s *subject) error {
	with := out
	with.Runs, with.Beside = out.Beside, nil
	if err := b.printRuns(b.name, append(settings, setting{"stalled", b.stalled}, setting{"slow", b.slow}), with, wanted, s); err != nil {
		return err
	}
	growth := figure.MedianGrowth(out.Runs, out.Beside)
	remarks := b.besideRemarks(out, growth)
	ended := int64(-1)
	if out.Before != nil && out.Before.Slow >= 0 && out.After.Slow >= 0 {
		ended = out.After.Slow - out.Before.Slow
	}
	if n := int64(b.stalled * len(out.Beside)); ended >= 0 && ended < n {
		remarks = append(remarks, fmt.Sprintf("the server has not ended all stalled subscribers (%d of %d): the runs were too short for that, or took too little; give a longer --duration or a higher --rate", ended, n))
	}
	if !b.table() {
		return b.line(map[string]any{
			"kind": "comparison", "bench": b.name, "remarks": remarks, "stalled": b.stalled, "slow": b.slow,
			"p99_growth_median": growth, "slow_consumers_ended": ended, "before": out.Before, "after": out.After,
		})
	}
	fmt.Fprintf(b.out, "p99 with %d stalled and %d slow subscribers beside: %.2f times that without, by the median of %s\n", b.stalled, b.slow, growth, counted(len(out.Beside), "pair"))
	if out.Before != nil && ended >= 0 {
		fmt.Fprintf(b.out, "the server ended %s; its memory was %s kB before and %s kB after, %s kB at most\n",
			counted(int(ended), "slow consumer"), kilobytes(out.Before.RSS), kilobytes(out.After.RSS), kilobytes(out.After.Peak))
	}
	for _, text := range remarks {
		fmt.Fprintln(b.out, text)
	}
	return whole(with)
}

// besideRemarks say what a growth of the p99 may have been instead.
func (b *benchFanout) besideRemarks(out load.Outcome, growth float64) []string {
	late := figure.LateShare(out.Runs, out.Beside)
	if growth <= meantGrowth || late < lateShare {
		return []string{}
	}
	return []string{fmt.Sprintf("the load generator itself sent later beside them (LATE P99): that is %.0f %% of the growth, by the median, and says nothing of the server", 100*min(late, 1))}
}

const (
	// meantGrowth is what the p99 may grow from one run to the next by itself.
	meantGrowth = 1.25
	// lateShare of a growth is worth a word.
	lateShare = 0.25
)

// against sets the best run beside the floor of a fan-out.
func (b *benchFanout) against(bare floorFigure, out load.Outcome) error {
	for _, r := range out.Runs {
		if !r.Best {
			continue
		}
		if bare.PerSecond == 0 {
			return nil
		}
		cpu := 0.0
		if r.Server != nil && bare.Server != nil {
			cpu = r.Server.CPU / max(bare.Server.CPU, 1e-3)
		}
		var rate *float64 // at a fixed rate both have it, and their ratio says nothing
		if b.rate == 0 {
			v := math.Round(1000*r.PerSecond/bare.PerSecond) / 1000
			rate = &v
		}
		if !b.table() {
			line := map[string]any{"kind": "comparison", "bench": b.name, "floor": bare.Floor, "transport": b.transport, "server_cpu_ratio": math.Round(1000*cpu) / 1000}
			if rate != nil {
				line["rate_ratio"] = *rate
			}
			return b.line(line)
		}
		var said []string
		if rate != nil {
			said = append(said, fmt.Sprintf("%.2f times its deliveries a second", *rate))
		}
		if cpu > 0 {
			said = append(said, fmt.Sprintf("%.2f times its server µs each", cpu))
		}
		if len(said) == 0 {
			return nil
		}
		over := ""
		if b.transport != load.WebSocket {
			over = "over " + b.transport + ", "
		}
		_, err := fmt.Fprintf(b.out, "%sagainst the %s of this run: %s\n", over, bareFanout, strings.Join(said, ", "))
		return err
	}
	return nil
}

// compare sets the cost of a message beside that of a message of one subscriber.
func (b *benchFanout) compare(one, many load.Outcome) error {
	a, z := cheapest(one.Runs), cheapest(many.Runs)
	if a == nil || z == nil {
		return nil
	}
	if b.table() {
		_, err := fmt.Fprintf(b.out, "server µs per message, each the least of its runs: one subscriber %.2f, %d subscribers on keys of their own %.2f (%.2f times)\n",
			a.CPU, b.subscribers, z.CPU, z.CPU/max(a.CPU, 1e-3))
		return err
	}
	return b.line(map[string]any{"kind": "comparison", "bench": b.name, "subscribers": b.subscribers, "one_cpu_us": a.CPU, "many_cpu_us": z.CPU})
}

// cheapest is the least that a message cost the server in a run; nil: not known.
func cheapest(runs []figure.Run) (least *figure.Cost) {
	for _, r := range runs {
		if r.Server != nil && (least == nil || r.Server.CPU < least.CPU) {
			least = r.Server
		}
	}
	return least
}
