package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

// betweenLooks is how often a drain is asked how far it is.
const betweenLooks = 200 * time.Millisecond

func newDrain(p process) *cobra.Command {
	var cancel, wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Take leaders and clients off a node, for as long as it runs",
		Long: `Drain asks that other nodes lead what a node leads, and that its clients go elsewhere.
No write fails for it. The node stays in the cluster and follows on; it is drained
until it is started again, or until --cancel.

With --wait the command returns once the node leads nothing and has no clients; a
start of the node meanwhile ends the drain, and the wait with exit 1.
SIGTERM does all of that by itself before it stops a node.`,
		Example: `  tidewire drain n2 --wait && ssh n2 sudo reboot
  tidewire drain n2 --cancel`,
		Args: thisNode,
	}
	r := addRemote(cmd, p)
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take the drain back: the node leads and serves again")
	cmd.Flags().BoolVar(&wait, "wait", false, "return once it is done; progress goes to the standard error")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait (exit 1: it was not done by then)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		if timeout <= 0 {
			return usagef("--timeout: %s is no time to wait", timeout)
		}
		if err := c.Drain(cmd.Context(), args[0], cancel); err != nil {
			return err
		}
		look := func(ctx context.Context) (client.Node, error) { return c.Node(ctx, args[0]) }
		n, err := look(cmd.Context())
		if err == nil && wait {
			n, err = awaitDrain(cmd.Context(), r, n, cancel, timeout, look)
		}
		if err != nil {
			return err
		}
		if !r.table() {
			return r.line(n.Raw)
		}
		_, err = fmt.Fprintln(r.out, visible(drained(n, cancel)))
		return err
	}
	return cmd
}

// done says that a node is where a drain, or its cancelling, leads to.
func done(n client.Node, cancel bool) bool {
	if cancel {
		return n.State != "draining"
	}
	return n.State == "draining" && n.Partitions.Led == 0 && (n.Connections == nil || *n.Connections == 0)
}

// awaitDrain looks at a node until it is done, and says how far it is.
func awaitDrain(ctx context.Context, r *remote, n client.Node, cancel bool, timeout time.Duration, look func(context.Context) (client.Node, error)) (client.Node, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	tick := time.NewTicker(betweenLooks)
	defer tick.Stop()
	began := false
	for said := ""; !done(n, cancel); {
		if began && n.State != "draining" && !cancel {
			return n, &exitError{exitFailed, fmt.Errorf("%s is %s: it stopped or was started again, or somebody took the drain back, and so it is drained no longer", visible(n.Name), visible(n.State))}
		}
		began = began || n.State == "draining"
		if now := drained(n, cancel); now != said {
			fmt.Fprintln(r.err, visible(now))
			said = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return n, &exitError{exitFailed, fmt.Errorf("not done within %s: %s", timeout, visible(drained(n, cancel)))}
		}
		// A node that answers nothing just now may be the one that is drained.
		if seen, err := look(ctx); err == nil {
			n = seen
		} else if exitCode(err) == exitRefused && ctx.Err() == nil {
			return n, err
		}
	}
	return n, nil
}

// drained says in one line how far a drain is.
func drained(n client.Node, cancel bool) string {
	text := fmt.Sprintf("%s is %s and leads %d partitions", n.Name, n.State, n.Partitions.Led)
	if n.Connections != nil {
		text += fmt.Sprintf(", with %d connections", *n.Connections)
	}
	if done(n, cancel) && !cancel {
		text = n.Name + " is drained: it leads nothing and has no clients; it follows on until it is stopped"
	}
	return text
}
