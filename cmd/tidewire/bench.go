package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
)

func newBench(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a server: publishing, latency, fan-out, groups, requests, connections, restarts",
		Long: `Bench puts a load on a running server (--server), or on one that it starts for the
purpose in a data folder of its own and ends again (--spawn), and prints rates,
latencies by percentile, and what server and load generator used per message.

Every figure is the best of --runs runs, all of which are shown, and stands beside
floors measured in the same run: a WebSocket that only echoes, an HTTP server that
only takes bodies, a disk that is only synced. The load generator shares the
machine with the server, so its own use is printed too.

It needs Linux, and a server that speaks clear text. Topics it makes are deleted
at the end, Ctrl-C included: the first ends the load and cleans up, a second kills a
server that was spawned and still removes its folder. A third, or SIGKILL, leaves
what is there: topics named bench-… and folders named tidewire-bench-… in --dir.`,
		Example: `  tidewire bench publish --spawn --publishers 256
  tidewire bench latency --spawn --rate 1000
  tidewire bench fanout --spawn --subscribers 10000 --in-flight 8
  tidewire bench groups --spawn --nodes 3 --partitions 6
  tidewire bench requests --spawn --requesters 64
  tidewire bench connections --server http://127.0.0.1:8080 --server-pid 4711`,
		Args: nearestCommand,
		RunE: group,
	}
	cmd.AddCommand(newBenchPublish(p), newBenchLatency(p), newBenchFanout(p), newBenchConnections(p), newBenchGroups(p), newBenchRequests(p), newBenchRestart(p), newBenchFloor(p))
	return cmd
}

// benchFlags are what all benchmarks are told.
type benchFlags struct {
	spawn      bool
	nodes      int      // that are spawned
	serveArgs  []string // what a server that is spawned gets
	spawnArgs  []string // and what it is to get besides
	dir        string
	pid        int
	topic      string
	partitions int
	bytes      int
	repeats    int // runs of the load
	duration   time.Duration
	warmup     time.Duration
	noFloors   bool
	noProgress bool
	given      func(flag string) bool // on the command line
	bounds     []func() error         // of flags: what is wrong with their values
}

// bench is one benchmark under way.
type bench struct {
	*remote
	benchFlags
}

// addBench gives a command the flags of all benchmarks of a server, spawned or not.
func addBench(cmd *cobra.Command, p process) *bench {
	b := &bench{remote: addRemote(cmd, p)}
	b.addSpawn(cmd)
	fs := cmd.Flags()
	fs.IntVar(&b.pid, "server-pid", 0, "the `process` of the server, if it is on this machine: its use is read from /proc")
	fs.StringVar(&b.topic, "topic", "", "use this topic, and leave it; one is made and deleted if not given")
	b.number(cmd, &b.partitions, "partitions", 1, 1, 256, "partitions of the topic that is made")
	b.number(cmd, &b.nodes, "nodes", 1, 1, maxBenchNodes, "with --spawn: start a cluster of so many; clients take turns among them, and records are kept by three of them, or by all")
	exclude(cmd, "spawn", "server")
	exclude(cmd, "spawn", "server-pid")
	// A load connects as fast as it can, and is not to measure this bound.
	b.serveArgs = []string{"--max-connection-rate", "0"}
	return b
}

// addBenchSpawned gives a command those of a benchmark that does to its server what
// nobody does to another's.
func addBenchSpawned(cmd *cobra.Command, p process) *bench {
	b := &bench{remote: &remote{process: p}}
	cmd.Flags().StringVar(&b.token, "token", "", "`token` to show the server; better in "+tokenVariable+": other users of the machine see flags")
	b.addOutput(cmd)
	b.addSpawn(cmd)
	b.partitions, b.nodes = 1, 1
	return b
}

// addSpawn adds the flags of a server that is spawned, and those that go with any.
func (b *bench) addSpawn(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&b.spawn, "spawn", false, "start a server for the purpose, and end it at the end")
	fs.StringArrayVar(&b.spawnArgs, "spawn-arg", nil, "a further `flag` of the server that is started, such as --max-connections=0; may be repeated")
	fs.StringVar(&b.dir, "dir", ".", "the `folder` in which a spawned server gets a data folder")
	fs.BoolVar(&b.noProgress, "no-progress", false, "show no progress bar on a terminal")
	_ = cmd.MarkFlagDirname("dir")
	cmd.Args = cobra.NoArgs
	b.given = fs.Changed
}

// addRuns adds the flags of a benchmark that is measured in runs.
func (b *bench) addRuns(cmd *cobra.Command, bytes int) {
	fs := cmd.Flags()
	b.addBytes(cmd, bytes)
	b.number(cmd, &b.repeats, "runs", 5, 1, 1000, "how many runs")
	b.span(cmd, &b.duration, "duration", 5*time.Second, 100*time.Millisecond, "how long a run takes")
	b.span(cmd, &b.warmup, "warmup", 2*time.Second, 0, "how long the load goes on before the first run")
	fs.Lookup("dir").Usage += ", and whose disk is the floor"
	fs.BoolVar(&b.noFloors, "no-floors", false, "leave out the floors")
}

// addBytes adds the size of values.
func (b *bench) addBytes(cmd *cobra.Command, bytes int) {
	b.number(cmd, &b.bytes, "bytes", bytes, message.MinBytes, maxBenchBytes, fmt.Sprintf("size of a value, %d or more", message.MinBytes))
}

// benchLimits: what is more is a slip of the finger, or the generator's own
// memory would be measured.
const (
	maxBenchBytes       = 8 << 20
	maxBenchConnections = 500_000
	maxBenchNodes       = 9
	maxBenchInFlight    = 1 << 30 // bytes
	maxBenchRate        = 1e7     // a second
	benchFileBytes      = 1 << 30 // of a topic that is made
)

// check joins the faults of all flags.
func (b *bench) check(more ...error) error {
	faults := []error{b.checkOutput()}
	for _, bound := range b.bounds {
		faults = append(faults, bound())
	}
	if !b.spawn && b.nodes != 1 {
		faults = append(faults, errors.New("--nodes: no node is started without --spawn"))
	}
	if b.spawn && b.topic != "" {
		faults = append(faults, errors.New("--topic: the server that --spawn starts has no topics: leave --topic out, and one is made"))
	}
	if !b.spawn && b.topic != "" && b.given("partitions") {
		faults = append(faults, errors.New("--partitions: --topic names a topic that has its partitions already"))
	}
	if !b.spawn && len(b.spawnArgs) > 0 {
		faults = append(faults, errors.New("--spawn-arg: no server is started without --spawn"))
	}
	if err := errors.Join(append(faults, more...)...); err != nil {
		return usage(err)
	}
	return nil
}

func (b *bench) plan() load.Plan {
	return load.Plan{Warmup: b.warmup, Duration: b.duration, Runs: b.repeats}
}

// run runs f against a server, and leaves nothing behind.
func (b *bench) run(ctx context.Context, f func(ctx context.Context, s *subject) error) error {
	ctx, hurry, stop := benchSignals(ctx)
	defer stop()
	s, err := b.subject(ctx, hurry)
	if err != nil {
		return interrupted(ctx, err)
	}
	err = f(ctx, s)
	s.bar.finish()
	return errors.Join(interrupted(ctx, err), s.close())
}

// interrupted puts what Ctrl-C does into words.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return &exitError{exitFailed, errors.New("interrupted: there are no figures of what was not finished")}
	}
	var no *load.Refusal
	var coded *exitError
	if errors.As(err, &no) && !errors.As(err, &coded) {
		return &exitError{exitRefused, err}
	}
	return err
}
