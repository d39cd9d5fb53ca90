package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
)

// benchPublish are the flags of bench publish.
type benchPublish struct {
	*bench
	transport  string
	publishers int
	window     int
	rate       float64
	keys       int
	acks       string
	batch      int
}

func newBenchPublish(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Measure publishing over WebSocket, HTTP or ndjson",
		Long: `Publish measures how many records a second a server keeps, and how long each takes
to be acknowledged.

Without --rate it is a closed loop: each publisher has --window records in flight,
1 by default, and sends the next when one is acknowledged. With --rate it is an
open loop: records leave by a schedule, and a latency counts from the time the
schedule names, however late the record was sent.

Over http and ndjson a publisher is a connection with one request in flight; a
request of ndjson has --batch records.`,
		Example: `  tidewire bench publish --spawn --publishers 256
  tidewire bench publish --spawn --publishers 1 --window 1000
  tidewire bench publish --spawn --transport http --publishers 256
  tidewire bench publish --publishers 16 --rate 5000 --keys 100`,
	}
	b := &benchPublish{bench: addBench(cmd, p)}
	b.addRuns(cmd, 1024)
	fs := cmd.Flags()
	fs.StringVar(&b.transport, "transport", load.WebSocket, "how records are published: ws, http or ndjson")
	fs.IntVar(&b.publishers, "publishers", 16, "connections that publish")
	fs.IntVar(&b.window, "window", 1, "records in flight of each publisher, over ws; with --rate it is the most, and 1000 if not given")
	fs.Float64Var(&b.rate, "rate", 0, "records a second of all publishers together; 0: as many as go")
	fs.IntVar(&b.keys, "keys", 0, "records take turns among so many keys; 0: no key")
	fs.StringVar(&b.acks, "acks", "all", "wait until a record is kept by all in-sync replicas, by the leader, or by none: all, leader or none")
	fs.IntVar(&b.batch, "batch", 500, "records of a request of ndjson")
	complete(cmd, "transport", load.WebSocket, load.HTTP, load.Lines)
	complete(cmd, "acks", "all", "leader", "none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if b.rate > 0 && !cmd.Flags().Changed("window") {
			b.window = 1000 // an open loop does not wait for answers
		}
		if b.transport != load.WebSocket && !cmd.Flags().Changed("window") {
			b.window = 1
		}
		if err := b.check(); err != nil {
			return err
		}
		if err := proc.RaiseFiles(b.publishers); err != nil {
			return err
		}
		return b.run(cmd.Context(), b.measure)
	}
	return cmd
}

func (b *benchPublish) check() error {
	faults := []error{
		choice("transport", b.transport, load.WebSocket, load.HTTP, load.Lines), choice("acks", b.acks, "all", "leader", "none"),
		within("publishers", b.publishers, 1, maxBenchConnections), within("window", b.window, 1, 100_000),
		within("keys", b.keys, 0, 9_999_999), within("batch", b.batch, 1, 10_000), withinRate("rate", b.rate),
	}
	if b.transport != load.WebSocket && b.window != 1 {
		faults = append(faults, fmt.Errorf("--window: a publisher over %s has one request in flight; give more --publishers", b.transport))
	}
	if b.transport != load.Lines && b.given("batch") {
		faults = append(faults, fmt.Errorf("--batch: a request over %s has one record; only ndjson has a batch", b.transport))
	}
	if b.inFlight() > maxBenchInFlight/max(1, b.bytes) {
		faults = append(faults, fmt.Errorf("--publishers, --window and --bytes: more than %d bytes would be in flight", maxBenchInFlight))
	}
	return b.bench.check(errors.Join(faults...))
}

func withinRate(flag string, v float64) error {
	if !(v >= 0 && v <= maxBenchRate) { // what is no number is not either
		return fmt.Errorf("--%s: %s is not between 0 and %d", flag, strconv.FormatFloat(v, 'f', -1, 64), int64(maxBenchRate))
	}
	return nil
}

// inFlight is how many records are, at most.
func (b *benchPublish) inFlight() int {
	n := b.publishers * b.window
	if b.transport == load.Lines {
		n *= b.batch
	}
	return n
}

func (b *benchPublish) measure(ctx context.Context, s *subject) error {
	w := load.Publish{
		Target: s.target, Transport: b.transport, Publishers: b.publishers, Window: b.window, Plan: b.plan(),
		Records: load.Records{Topic: s.topic, Bytes: b.bytes, Keys: b.keys, Acks: b.acks, Batch: b.batch},
	}
	if w.Rate = b.rate; b.transport == load.Lines {
		w.Rate /= float64(b.batch) // of requests
	}
	name := "net/http POST"
	if b.transport == load.WebSocket {
		name = "websocket echo"
	}
	if err := b.floors(ctx, s, b.inFlight(), name, w); err != nil {
		return err
	}
	out, err := w.Run(ctx, s.bar)
	if err != nil {
		return err
	}
	s.bar.finish()
	settings := []setting{
		{"nodes", b.nodes},
		{"transport", b.transport},
		{"publishers", b.publishers},
		{"window", b.window},
		{"bytes", b.bytes},
		{"acks", b.acks},
		{"keys", b.keys},
		{"partitions", s.partitions},
	}
	if b.transport == load.Lines {
		settings = append(settings, setting{"batch", b.batch})
	}
	if b.rate > 0 {
		settings = append(settings, setting{"rate", b.rate})
	}
	if err := b.printRuns("publish", settings, out, b.rate, s); err != nil {
		return err
	}
	return whole(out)
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
