package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/capacity"
	"tidewire/internal/boot"
)

// capacityFlags are the flags of capacity.
type capacityFlags struct {
	*remote
	capacity.Case
	play     capacity.Play
	simulate bool

	from    []string
	measure bool
	keep    string
	dir     string

	memory, disk string // sizes, as text
	network      float64
}

func newCapacity(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Reckon how many nodes a load takes, from what bench measured",
		Long: `Capacity multiplies a load with what bench measured on the machine at hand, and prints
nodes, disk, bandwidth, memory and rates, which resource binds, what is left after the
death of a node and how long its clients take to come back, with all assumptions.

The figures are lines that bench printed with --output json (--from, or - for standard
input), or are measured now (--measure, some two minutes).

With --simulate the same load is played as well: records that come by chance and in
bursts, the deaths, the clients that come back. The same --seed plays the same.`,
		Example: `  tidewire capacity --measure --keep bench.jsonl --users 100000 --online 0.2 --messages 50 --readers 5
  tidewire capacity --from bench.jsonl --rate 20000 --retention 168h --bytes 512
  tidewire capacity --from bench.jsonl --users 1000000 --online 0.1 --messages 40 --readers 4 --simulate`,
		Args: noArguments,
	}
	c := &capacityFlags{remote: &remote{process: p}}
	fs := cmd.Flags()
	fs.StringArrayVar(&c.from, "from", nil, "`file` of lines that bench printed; may be repeated, - is standard input")
	fs.BoolVar(&c.measure, "measure", false, "measure now, with nodes that are started for it on this machine")
	fs.StringVar(&c.keep, "keep", "", "with --measure: keep what is measured in this `file`, for --from")
	fs.StringVar(&c.dir, "dir", ".", "with --measure: the `folder` in which those nodes get data folders, and whose disk is measured")
	fs.Float64Var(&c.Users, "users", 0, "users a day")
	fs.Float64Var(&c.Online, "online", 1, "share of them that is connected at the peak")
	fs.Float64Var(&c.Messages, "messages", 0, "records that a user publishes a day")
	fs.Float64Var(&c.Rate, "rate", 0, "records a second besides, in the mean")
	fs.Float64Var(&c.Peak, "peak", 3, "the busiest hour, in times of the mean")
	fs.IntVar(&c.Bytes, "bytes", 256, "size of a value")
	fs.Float64Var(&c.Readers, "readers", 0, "connections that get each record, in the mean")
	fs.IntVar(&c.Groups, "groups", 0, "consumer groups that work through all records")
	fs.IntVar(&c.Replicas, "replicas", 3, "nodes that keep a record")
	fs.DurationVar(&c.Retention, "retention", 168*time.Hour, "how long records are kept")
	fs.IntVar(&c.Deaths, "deaths", 1, "nodes that may be dead while the others carry all of it")
	fs.Float64Var(&c.Load, "load", 0.6, "the share of a node that is used at the most")
	fs.Float64Var(&c.Cores, "cores", 8, "processors of a node, as those of the machine that was measured")
	fs.StringVar(&c.memory, "memory", "32GiB", "memory of a node, `bytes` or with KiB, MiB, GiB, TiB")
	fs.StringVar(&c.disk, "disk", "1TiB", "disk of a node, likewise in `bytes`")
	fs.Float64Var(&c.network, "network", 10, "network of a node each way, in `Gbit/s`")
	fs.IntVar(&c.Admitted, "max-connection-rate", 2000, "connections that a node takes in a second, as its setting says")
	fs.BoolVar(&c.simulate, "simulate", false, "play the load too")
	fs.Uint64Var(&c.play.Seed, "seed", 1, "with --simulate: what chance begins with")
	fs.IntVar(&c.play.Seconds, "seconds", 300, "with --simulate: how long is played; the deaths come after a third")
	fs.Float64Var(&c.play.Burst, "burst", 2, "with --simulate: bursts of so many times the peak, of 5 s, about every minute")
	c.addOutput(cmd)
	_ = cmd.MarkFlagDirname("dir")
	exclude(cmd, "measure", "from")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd.Flags().Changed) }
	return cmd
}

func (c *capacityFlags) run(ctx context.Context, given func(flag string) bool) error {
	if err := c.check(given); err != nil {
		return err
	}
	figures, err := c.figures(ctx)
	if err != nil {
		return err
	}
	sizing, err := capacity.Size(c.Case, figures)
	if err != nil {
		return fmt.Errorf("this cannot be reckoned: %w", err)
	}
	var played *capacity.Simulated
	if c.simulate {
		s, err := capacity.Simulate(c.Case, figures, sizing, c.play)
		if err != nil {
			return usage(err)
		}
		played = &s
	}
	return c.print(figures, sizing, played)
}

func (c *capacityFlags) check(given func(flag string) bool) error {
	var faults []error
	size := func(flag, text string, to *float64) {
		n, err := boot.ParseSize(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("--%s: %w", flag, err))
		}
		*to = float64(n)
	}
	size("memory", c.memory, &c.Memory)
	size("disk", c.disk, &c.Disk)
	c.Network, c.Hours = c.network*1e9, c.Retention.Hours()
	if len(faults) == 0 {
		faults = append(faults, c.Case.Check())
	}
	if !c.measure && len(c.from) == 0 {
		faults = append(faults, errors.New("there are no figures: name files of bench with --from, or let --measure measure now"))
	}
	for _, flag := range []string{"keep", "dir"} {
		if given(flag) && !c.measure {
			faults = append(faults, fmt.Errorf("--%s: nothing is measured without --measure", flag))
		}
	}
	for _, flag := range []string{"seed", "seconds", "burst"} {
		if given(flag) && !c.simulate {
			faults = append(faults, fmt.Errorf("--%s: nothing is played without --simulate", flag))
		}
	}
	faults = append(faults, c.checkOutput())
	if err := errors.Join(faults...); err != nil {
		return usage(err)
	}
	return nil
}

// figures are those of the files, or new ones.
func (c *capacityFlags) figures(ctx context.Context) (f capacity.Figures, err error) {
	if c.measure {
		return c.measured(ctx)
	}
	for _, name := range c.from {
		if err := c.read(&f, name); err != nil {
			return f, fmt.Errorf("--from %s: %w", name, err)
		}
	}
	return f, nil
}

func (c *capacityFlags) read(f *capacity.Figures, name string) error {
	var from io.Reader = c.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	return f.Read(from)
}
