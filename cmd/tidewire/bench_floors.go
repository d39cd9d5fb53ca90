package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/bench/child"
	"tidewire/cmd/tidewire/internal/bench/figure"
	"tidewire/cmd/tidewire/internal/bench/floor"
	"tidewire/cmd/tidewire/internal/bench/load"
	"tidewire/cmd/tidewire/internal/bench/sock"
)

// floorCommand is what a benchmark starts this binary with.
const floorCommand = "serve-floor"

// newBenchFloor is the floors' server. It is no command for people.
func newBenchFloor(p process) *cobra.Command {
	return &cobra.Command{
		Use: floorCommand, Short: "The server of the floors", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return floor.Serve(ctx, p.out)
		},
	}
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

// floorLoad measures the floors' server under a load, such as the real one gets.
func (b *bench) floorLoad(ctx context.Context, s *subject, name string, w load.Publish) (floorFigure, error) {
	process, err := child.Start(ctx, "bench", floorCommand)
	if err != nil {
		return floorFigure{}, fmt.Errorf("the floor: %w", err)
	}
	defer process.Stop()
	w.Target = load.Target{Host: process.Addr, PID: process.PID}
	if w.Target.Addr, err = sock.Resolve(ctx, process.Addr); err != nil {
		return floorFigure{}, err
	}
	w.Plan = load.Plan{Warmup: min(floorWarmup, b.warmup), Duration: min(floorTime, b.duration), Runs: min(floorRuns, b.runs)}
	out, err := w.Run(ctx, floorProgress{s.bar})
	if err != nil {
		return floorFigure{}, fmt.Errorf("the floor (%s): %w", name, err)
	}
	r := out.Runs[figure.MarkBest(out.Runs, w.Rate*float64(w.PerPublish()))]
	return floorFigure{
		Kind: "floor", Floor: name, Connections: w.Publishers, Bytes: w.Records.Bytes,
		PerSecond: r.PerSecond, Latency: r.Latency, Server: r.Server, Generator: &r.Generator,
	}, nil
}

// floorDisk measures the disk: a record a sync, and all that are in flight.
func (b *bench) floorDisk(ctx context.Context, s *subject, inFlight int) (all []floorFigure, err error) {
	s.bar.Phase("floor: fdatasync", 2)
	group := max(1, min(inFlight, groupBytes/b.bytes))
	for i, records := range []int{1, group} {
		if i > 0 && group == 1 {
			break
		}
		d, err := floor.MeasureDisk(ctx, s.dir, b.bytes, records, min(diskTime, b.duration))
		if err != nil {
			return nil, err
		}
		name := "write + fdatasync"
		if i > 0 {
			name = fmt.Sprintf("the same, %d records at once", records)
		}
		all = append(all, floorFigure{Kind: "floor", Floor: name, Bytes: d.Bytes, PerSecond: d.PerSecond, Latency: d.Latency})
		s.bar.Step(i + 1)
	}
	return all, nil
}

// floors measures the disk and the floor's server under a load, and prints both.
func (b *bench) floors(ctx context.Context, s *subject, inFlight int, name string, w load.Publish) error {
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
	s.bar.finish()
	return b.printFloors(append(all, f))
}

// floorProgress says that it is a floor that is measured.
type floorProgress struct{ *benchProgress }

func (p floorProgress) Phase(what string, steps int) { p.benchProgress.Phase("floor: "+what, steps) }

// errShort is the end of a benchmark whose load did not come through whole.
var errShort = errors.New("the load did not come through whole: the figures are not those of a healthy server")
