// Quick prints what a message costs on the main paths, as ratios to the floors of the same
// run, in less than two minutes.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"tidewire/bench/internal/brief"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quick:", err)
		os.Exit(1)
	}
}

// limit bounds one benchmark.
const limit = 90 * time.Second

// run measures path after path. One that fails is told of, and the rest goes on.
func run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	tidewire := filepath.Join(filepath.Dir(self), "tidewire")
	var all []brief.Cost
	var faults []error
	began := time.Now()
	for _, p := range brief.Paths() {
		fmt.Fprintf(os.Stderr, "tidewire bench %s\n", p.Args)
		c, err := measure(ctx, tidewire, p)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		all = append(all, c)
	}
	fmt.Print(brief.Table(all))
	fmt.Fprintf(os.Stderr, "took %s\n", time.Since(began).Round(time.Second))
	return errors.Join(faults...)
}

func measure(ctx context.Context, tidewire string, p brief.Path) (brief.Cost, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, tidewire, append([]string{"bench"}, p.Args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends what it has spawned
	cmd.WaitDelay = 20 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return brief.Cost{}, fmt.Errorf("%s: %w: %s", p.Name, err, said.Bytes())
	}
	return brief.Read(p, &out)
}
