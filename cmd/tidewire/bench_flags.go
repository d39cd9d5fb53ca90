package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/proc"
)

// measurement is what a benchmark is beside what all of them are.
type measurement interface {
	// settle fills in what depends on which flags were given, and joins the faults of flags
	// that do not go together.
	settle() error
	// connections is how many it opens at the most.
	connections() int
	measure(ctx context.Context, s *subject) error
}

// runs has a command do a measurement.
func (b *bench) runs(cmd *cobra.Command, m measurement) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.check(m.settle()); err != nil {
			return err
		}
		if err := proc.RaiseFiles(m.connections()); err != nil {
			return err
		}
		return b.run(cmd.Context(), m.measure)
	}
}

// Flags with bounds: who adds one need not look at its value again.

func (b *bench) number(cmd *cobra.Command, to *int, name string, value, low, high int, help string) {
	cmd.Flags().IntVar(to, name, value, help)
	b.bounds = append(b.bounds, func() error { return within(name, *to, low, high) })
}

func (b *bench) perSecond(cmd *cobra.Command, to *float64, name string, value float64, help string) {
	cmd.Flags().Float64Var(to, name, value, help)
	b.bounds = append(b.bounds, func() error { return withinRate(name, *to) })
}

func (b *bench) span(cmd *cobra.Command, to *time.Duration, name string, value, low time.Duration, help string) {
	cmd.Flags().DurationVar(to, name, value, help)
	b.bounds = append(b.bounds, func() error { return atLeast(name, *to, low) })
}

func (b *bench) oneOf(cmd *cobra.Command, to *string, name, value, help string, of ...string) {
	cmd.Flags().StringVar(to, name, value, help)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp))
	b.bounds = append(b.bounds, func() error { return choice(name, *to, of...) })
}

// Flags that several benchmarks have.

func (b *bench) acksOf(cmd *cobra.Command, to *string, help string) {
	b.oneOf(cmd, to, "acks", "all", help, "all", "leader", "none")
}

func (b *bench) modeOf(cmd *cobra.Command, to *string, value, whose string) {
	b.oneOf(cmd, to, "mode", value, "of "+whose+": exclusive or shared", "exclusive", "shared")
}

func (b *bench) keysOf(cmd *cobra.Command, to *int, what string) {
	b.number(cmd, to, "keys", 0, 0, 9_999_999, what+" take turns among so many keys; 0: no key")
}

func (b *bench) transportOf(cmd *cobra.Command, to *string, help string, of ...string) {
	b.oneOf(cmd, to, "transport", of[0], help, of...)
}

// Rules that several benchmarks have.

// topicOfItsOwn refuses a topic that is there, for a reason.
func (b *bench) topicOfItsOwn(why string) error {
	if b.topic == "" {
		return nil
	}
	return fmt.Errorf("--topic: %s: leave --topic out, and one is made", why)
}

// inFlightBytes bounds what is in flight, by the flags that say how much.
func (b *bench) inFlightBytes(flags string, messages int) error {
	if messages <= maxBenchInFlight/max(1, b.bytes) {
		return nil
	}
	return fmt.Errorf("%s and --bytes: more than %d bytes would be in flight", flags, maxBenchInFlight)
}

// processKnown asks for the server's process, whose memory is measured.
func (b *bench) processKnown(prefix string) error {
	if b.spawn || b.pid != 0 {
		return nil
	}
	return errors.New(prefix + "the server's memory is what is measured: name its process with --server-pid, or let --spawn start one")
}

func within(flag string, n, low, high int) error {
	if n < low || n > high {
		return fmt.Errorf("--%s: %d is not between %d and %d", flag, n, low, high)
	}
	return nil
}

func atLeast(flag string, d, low time.Duration) error {
	if d < low {
		return fmt.Errorf("--%s: %s is less than %s", flag, d, low)
	}
	return nil
}

func withinRate(flag string, v float64) error {
	if !(v >= 0 && v <= maxBenchRate) { // what is no number is not either
		return fmt.Errorf("--%s: %s is not between 0 and %d", flag, strconv.FormatFloat(v, 'f', -1, 64), int64(maxBenchRate))
	}
	return nil
}

func choice(flag, value string, of ...string) error {
	for _, o := range of {
		if value == o {
			return nil
		}
	}
	return fmt.Errorf("--%s: %q is none of %v", flag, value, of)
}
