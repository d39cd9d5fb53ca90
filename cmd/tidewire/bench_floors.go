package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/child"
	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/floor"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/sock"
)

// floorCommand is what a benchmark starts this binary with.
const floorCommand = "serve-floor"

// newBenchFloor is the floors' server. It is no command for people.
func newBenchFloor(p process) *cobra.Command {
	run := 1
	cmd := &cobra.Command{
		Use: floorCommand, Short: "The server of the floors", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return floor.Serve(ctx, p.out, run)
		},
	}
	cmd.Flags().IntVar(&run, "run", 1, "how many messages of a fan-out are written together")
	return cmd
}

const (
	floorRuns   = 3
	floorTime   = time.Second // of a run
	floorWarmup = 500 * time.Millisecond
	diskTime    = time.Second
	// groupBytes bounds the write that stands for all records in flight.
	groupBytes = 1 << 20
)

// floorFigure is one floor, for the output.
type floorFigure struct {
	Kind        string          `json:"kind"` // floor
	Floor       string          `json:"floor"`
	Connections int             `json:"connections,omitempty"`
	Bytes       int             `json:"bytes"`
	PerSecond   float64         `json:"per_second"`
	Latency     *figure.Latency `json:"latency_us"`
	Server      *figure.Cost    `json:"server,omitempty"`
	Generator   *figure.Cost    `json:"generator,omitempty"`
}

// floorServer starts the floors' server for f, with runs of so many messages.
func floorServer(ctx context.Context, hurry <-chan struct{}, run int, f func(load.Target) error) error {
	process, err := child.Start(ctx, hurry, "bench", floorCommand, "--run", strconv.Itoa(run))
	if err != nil {
		return fmt.Errorf("the floor: %w", err)
	}
	defer process.Stop()
	target := load.Target{Host: process.Addr, PID: process.PID}
	if target.Addr, err = sock.Resolve(ctx, process.Addr); err != nil {
		return err
	}
	return f(target)
}

func (b *bench) floorPlan() load.Plan {
	return load.Plan{Warmup: min(floorWarmup, b.warmup), Duration: min(floorTime, b.duration), Runs: min(floorRuns, b.repeats)}
}

func newFloorFigure(name string, connections, bytes int, best figure.Run) floorFigure {
	return floorFigure{
		Kind: "floor", Floor: name, Connections: connections, Bytes: bytes,
		PerSecond: best.PerSecond, Latency: best.Latency, Server: best.Server, Generator: &best.Generator,
	}
}

// bestRun is the best of a floor's runs; one of nothing where nothing came back, as
// in short runs at a low rate.
func bestRun(runs []figure.Run, wanted float64) figure.Run {
	if i := figure.MarkBest(runs, wanted); i >= 0 {
		return runs[i]
	}
	return figure.Run{}
}

// floorLoad measures the floors' server under a load, such as the real one gets.
func (b *bench) floorLoad(ctx context.Context, s *subject, name string, w load.Publish) (f floorFigure, err error) {
	err = floorServer(ctx, s.hurry, 1, func(target load.Target) error {
		w.Target, w.Plan = target, b.floorPlan()
		out, err := w.Run(ctx, floorProgress{s.bar})
		if err != nil {
			return fmt.Errorf("the floor (%s): %w", name, err)
		}
		f = newFloorFigure(name, w.Publishers, w.Records.Bytes, bestRun(out.Runs, w.Rate*float64(w.PerPublish())))
		return nil
	})
	return f, err
}

// bareFanout is the floor of a fan-out.
const bareFanout = "bare websocket fan-out"

// floorFanout measures the floors' server under a fan-out.
func (b *bench) floorFanout(ctx context.Context, s *subject, w load.Fanout) (f floorFigure, err error) {
	run := 1 // of an open loop no message waits for another
	if w.Rate == 0 {
		run = w.Window
	}
	err = floorServer(ctx, s.hurry, run, func(target load.Target) error {
		w.Target, w.Plan, w.Transport, w.Stalled, w.Slow = target, b.floorPlan(), load.WebSocket, 0, 0
		out, err := w.Run(ctx, floorProgress{s.bar})
		if err != nil {
			return fmt.Errorf("the floor (%s): %w", bareFanout, err)
		}
		f = newFloorFigure(bareFanout, w.Subscribers, w.Records.Bytes, bestRun(out.Runs, w.Wanted()))
		return nil
	})
	return f, err
}

// keptBy is how many nodes keep a topic, if there are as many.
const keptBy = 3

// floorDisk measures the disk: a record a sync, on the disk of all nodes at once where
// there are several, and all that are in flight.
func (b *bench) floorDisk(ctx context.Context, s *subject, inFlight int) (all []floorFigure, err error) {
	copies := min(b.nodes, keptBy)
	group := max(1, min(inFlight, groupBytes/b.bytes))
	type step struct {
		name           string
		records, files int
	}
	steps := []step{{"write + fdatasync", 1, 1}}
	if copies > 1 {
		steps = append(steps, step{fmt.Sprintf("the same, %d files at once", copies), 1, copies})
	}
	if group > 1 {
		steps = append(steps, step{fmt.Sprintf("the same, %d records at once", group), group, copies})
	}
	s.bar.Phase("floor: fdatasync", len(steps))
	for i, step := range steps {
		d, err := floor.MeasureDisk(ctx, s.dir, floor.Write{Bytes: b.bytes, Records: step.records, Files: step.files}, min(diskTime, b.duration))
		if err != nil {
			return nil, err
		}
		all = append(all, floorFigure{Kind: "floor", Floor: step.name, Bytes: d.Bytes, PerSecond: d.PerSecond, Latency: d.Latency})
		s.bar.Step(i + 1)
	}
	return all, nil
}

// floors measures the disk and the floor's server under a load, and what more there
// is, and prints all.
func (b *bench) floors(ctx context.Context, s *subject, inFlight int, name string, w load.Publish, more ...func() (floorFigure, error)) error {
	if b.noFloors {
		return nil
	}
	all, err := b.floorDisk(ctx, s, inFlight)
	if err != nil {
		return err
	}
	f, err := b.floorLoad(ctx, s, name, w)
	if err != nil {
		return err
	}
	all = append(all, f)
	for _, measure := range more {
		if f, err = measure(); err != nil {
			return err
		}
		all = append(all, f)
	}
	s.bar.finish()
	return b.printFloors(all)
}

// floorProgress says that it is a floor that is measured.
type floorProgress struct{ *benchProgress }

func (p floorProgress) Phase(what string, steps int) { p.benchProgress.Phase("floor: "+what, steps) }

// errShort is the end of a benchmark whose load did not come through whole.
var errShort = errors.New("the load did not come through whole: the figures are not those of a healthy server")
