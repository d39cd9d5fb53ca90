package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
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
	b.transportOf(cmd, &b.transport, "how records are published: ws, http or ndjson", load.WebSocket, load.HTTP, load.Lines)
	b.number(cmd, &b.publishers, "publishers", 16, 1, maxBenchConnections, "connections that publish")
	b.number(cmd, &b.window, "window", 1, 1, 100_000, "records in flight of each publisher, over ws; with --rate it is the most, and 1000 if not given")
	b.perSecond(cmd, &b.rate, "rate", 0, "records a second of all publishers together; 0: as many as go")
	b.keysOf(cmd, &b.keys, "records")
	b.acksOf(cmd, &b.acks, "wait until a record is kept by all in-sync replicas, by the leader, or by none: all, leader or none")
	b.number(cmd, &b.batch, "batch", 500, 1, 10_000, "records of a request of ndjson")
	b.runs(cmd, b)
	return cmd
}

func (b *benchPublish) connections() int { return b.publishers }

func (b *benchPublish) settle() error {
	if b.rate > 0 && !b.given("window") {
		b.window = 1000 // an open loop does not wait for answers
	}
	if b.transport != load.WebSocket && !b.given("window") {
		b.window = 1
	}
	faults := []error{b.inFlightBytes("--publishers, --window", b.inFlight())}
	if b.transport != load.WebSocket && b.window != 1 {
		faults = append(faults, fmt.Errorf("--window: a publisher over %s has one request in flight; give more --publishers", b.transport))
	}
	if b.transport != load.Lines && b.given("batch") {
		faults = append(faults, fmt.Errorf("--batch: a request over %s has one record; only ndjson has a batch", b.transport))
	}
	return errors.Join(faults...)
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
	return b.report("publish", settings, out, b.rate, s)
}
