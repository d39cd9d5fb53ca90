package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
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
	fs := cmd.Flags()
	fs.IntVar(&b.requesters, "requesters", 16, "connections that ask")
	fs.IntVar(&b.window, "window", 1, "requests in flight of each requester")
	fs.IntVar(&b.responders, "responders", 4, "connections that answer")
	fs.StringVar(&b.mode, "mode", "shared", "of the responders' group: exclusive or shared")
	fs.IntVar(&b.keys, "keys", 0, "requests take turns among so many keys; 0: no key")
	complete(cmd, "mode", "exclusive", "shared")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.check(); err != nil {
			return err
		}
		if err := proc.RaiseFiles(b.requesters + b.responders); err != nil {
			return err
		}
		return b.run(cmd.Context(), b.measure)
	}
	return cmd
}

// mostWindow is how many requests a connection may have in flight at a server.
const mostWindow = 1024

func (b *benchRequests) check() error {
	faults := []error{
		within("requesters", b.requesters, 1, maxBenchConnections), within("responders", b.responders, 1, maxBenchConnections),
		within("window", b.window, 1, mostWindow), within("keys", b.keys, 0, 9_999_999), choice("mode", b.mode, "exclusive", "shared"),
	}
	if b.topic != "" {
		faults = append(faults, errors.New("--topic: whoever else serves it would answer too: leave --topic out, and one is made"))
	}
	if b.requesters*b.window > maxBenchInFlight/max(1, b.bytes) {
		faults = append(faults, fmt.Errorf("--requesters, --window and --bytes: more than %d bytes would be in flight", maxBenchInFlight))
	}
	return b.bench.check(errors.Join(faults...))
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
	s.bar.finish()
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
	if err := b.printRuns("requests", settings, out, 0, s); err != nil {
		return err
	}
	return whole(out)
}
