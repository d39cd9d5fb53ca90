package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

func newAlerts(p process) *cobra.Command {
	var firing bool
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "List what needs somebody, and what lately did",
		Long: `Alerts lists what the node that is asked has found of the whole cluster: nodes that are
down, partitions with too few replicas, replicas that lag or are damaged, disks that
fill up, groups that get nothing new because too much is not acknowledged. Each says since when and what to do. Those that fire come first, then those
that resolved in the last hour.`,
		Example: `  tidewire alerts
  tidewire alerts --firing --output json | jq -r .advice`,
		Args: noArguments,
	}
	r := addRemote(cmd, p)
	cmd.Flags().BoolVar(&firing, "firing", false, "leave out what has resolved")
	cmd.RunE = shows(r, func(ctx context.Context, c *client.Client, _ []string) ([]client.Alert, error) {
		return c.Alerts(ctx)
	}, func(all []client.Alert) (err error) {
		shown := 0
		for _, a := range all {
			if firing && a.State != "firing" {
				continue
			}
			shown++
			if r.table() {
				err = printAlert(r, a)
			} else {
				err = r.line(a.Raw)
			}
			if err != nil {
				return err
			}
		}
		if shown == 0 && r.table() {
			_, err = fmt.Fprintln(r.out, "nothing fires")
		}
		return err
	})
	return cmd
}

// printAlert writes an alert for a person: what, since when, and what to do.
func printAlert(r *remote, a client.Alert) error {
	when := "since " + a.Since
	if a.Until != "" {
		when = "from " + a.Since + " to " + a.Until
	}
	_, err := fmt.Fprintf(r.out, "%s %s, %s\n  %s\n", visible(a.State), visible(a.Alert), visible(when), visible(a.Detail))
	if err == nil && a.Advice != "" && a.State == "firing" {
		_, err = fmt.Fprintf(r.out, "  %s\n", visible(a.Advice))
	}
	return err
}
