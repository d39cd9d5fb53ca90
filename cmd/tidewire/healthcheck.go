package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newHealthcheck(p process) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a node whether it can serve (exit 0: yes, 1: no, 3: no answer)",
		Example: `  tidewire healthcheck
  HEALTHCHECK CMD ["/tidewire", "healthcheck", "--timeout", "2s"]`,
		Args: noArguments,
	}
	r := &remote{process: p}
	r.addServer(cmd)
	r.addOutput(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := r.openWithoutToken() // probes ask nobody who they are
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		ready, why, err := c.Ready(ctx)
		if err != nil {
			return err
		}
		if r.table() {
			state := "ready"
			if !ready {
				state = "not ready"
			}
			if why != "" {
				state += ": " + visible(why)
			}
			_, err = fmt.Fprintln(r.out, state)
		} else {
			answer := map[string]any{"ready": ready}
			if why != "" {
				answer["why"] = why
			}
			err = r.line(answer)
		}
		if err == nil && !ready {
			err = &exitError{code: exitFailed}
		}
		return err
	}
	return cmd
}
