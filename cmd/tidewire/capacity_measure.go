package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"tidewire/cmd/tidewire/internal/capacity"
)

// benchmarks are what capacity measures for a case: short runs, for it is the processor
// time of a message that counts, which depends little on who else is busy.
func (c *capacityFlags) benchmarks() [][]string {
	size := []string{"--bytes", strconv.Itoa(c.Bytes), "--runs", "3", "--duration", "3s"}
	publish := append([]string{"publish", "--publishers", "64"}, size...)
	all := [][]string{publish}
	if c.Replicas > 1 {
		all = append(all, append(append([]string{}, publish...), "--nodes", "3", "--partitions", "6"))
	}
	if c.Readers > 0 {
		all = append(all, append([]string{"fanout", "--subscribers", "2000", "--no-floors"}, size...))
	}
	if c.Groups > 0 {
		all = append(all, []string{"groups", "--bytes", strconv.Itoa(c.Bytes), "--records", "100000", "--runs", "2", "--no-floors"})
	}
	if c.Users*c.Online > 0 {
		all = append(all, []string{"connections", "--connections", "5000", "--settle", "30s"})
	}
	return all
}

// measured runs the benchmarks, and reads what they print.
func (c *capacityFlags) measured(ctx context.Context) (f capacity.Figures, err error) {
	var lines bytes.Buffer
	for _, args := range c.benchmarks() {
		fmt.Fprintf(c.err, "tidewire bench %s --spawn\n", strings.Join(args, " "))
		p := c.process
		p.out = &lines
		cmd := newBench(p)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args, "--spawn", "--dir", c.dir, "--output", "json"))
		cmd.SetIn(c.in)
		cmd.SetOut(&lines)
		cmd.SetErr(c.err)
		if err := cmd.ExecuteContext(ctx); err != nil {
			return f, fmt.Errorf("bench %s: %w", args[0], err)
		}
	}
	if c.keep != "" {
		if err := os.WriteFile(c.keep, lines.Bytes(), 0o666); err != nil {
			return f, fmt.Errorf("--keep: %w", err)
		}
	}
	return f, f.Read(&lines)
}
