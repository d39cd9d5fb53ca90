package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
)

// benchRequests are the flags of bench requests.
type benchRequests struct {
	*bench
	requesters int
	window     int
	responders int
	mode       string
	keys       int
}

func newBenchRequests(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "Measure request-reply: from a request to its reply",
		Long: `Requests has requesters ask and responders, members of one consumer group, answer each
request with its own value and acknowledge it, all over WebSocket, and measures how many
requests a second get their reply and how long each waits for it. A request is a record:
it is kept, on disk, before a responder sees it.

It is a closed loop: each requester has --window requests in flight, and sends the next
when a reply comes. A reply to another request than its own ends the benchmark.`,
		Example: `  tidewire bench requests --spawn --requesters 1 --responders 1
  tidewire bench requests --spawn --requesters 64 --responders 4
  tidewire bench requests --spawn --nodes 3 --partitions 6 --requesters 64 --responders 12`,
	}
	b := &benchRequests{bench: addBench(cmd, p)}
	b.addRuns(cmd, 128)
	b.number(cmd, &b.requesters, "requesters", 16, 1, maxBenchConnections, "connections that ask")
	b.number(cmd, &b.window, "window", 1, 1, mostWindow, "requests in flight of each requester")
	b.number(cmd, &b.responders, "responders", 4, 1, maxBenchConnections, "connections that answer")
	b.modeOf(cmd, &b.mode, "shared", "the responders' group")
	b.keysOf(cmd, &b.keys, "requests")
	b.runs(cmd, b)
	return cmd
}

// mostWindow is how many requests a connection may have in flight at a server.
const mostWindow = 1024

func (b *benchRequests) connections() int { return b.requesters + b.responders }

func (b *benchRequests) settle() error {
	return errors.Join(b.topicOfItsOwn("whoever else serves it would answer too"), b.inFlightBytes("--requesters, --window", b.requesters*b.window))
}

func (b *benchRequests) measure(ctx context.Context, s *subject) error {
	w := load.Requests{
		Target: s.target, Requesters: b.requesters, Window: b.window, Responders: b.responders, Mode: b.mode, Plan: b.plan(),
		Records: load.Records{Topic: s.topic, Bytes: b.bytes, Keys: b.keys, Acks: "all"},
	}
	echo := load.Publish{Target: w.Target, Transport: load.WebSocket, Publishers: w.Requesters, Window: w.Window, Records: w.Records}
	if err := b.floors(ctx, s, b.requesters*b.window, "websocket echo", echo); err != nil {
		return err
	}
	out, err := w.Run(ctx, s.bar)
	if err != nil {
		return err
	}
	settings := []setting{
		{"nodes", b.nodes},
		{"partitions", s.partitions},
		{"requesters", b.requesters},
		{"window", b.window},
		{"responders", b.responders},
		{"mode", b.mode},
		{"bytes", b.bytes},
		{"keys", b.keys},
	}
	return b.report("requests", settings, out, 0, s)
}
