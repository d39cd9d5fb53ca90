package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

// oldAge is how long ago a coordinator was heard where that is worth a word.
const oldAge = 2 * time.Second

func newNodes(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes [NODE]",
		Short: "List the nodes, or show one",
		Long: `Nodes lists the nodes of the cluster as the node that is asked knows them: how each is
(alive, suspect, draining, dead), what it does, how many partitions it leads and
follows, how many replicas are on their way to or from it, and what is free on its
disk. The leading coordinator is marked with a star.`,
		Example: `  tidewire nodes
  tidewire nodes n2 --output json | jq .
  tidewire nodes --output json | jq -r 'select(.state == "dead") | .name'`,
		Args: oneNode,
	}
	r := addRemote(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		var nodes []client.Node
		var age time.Duration
		if len(args) == 1 {
			n, err := c.Node(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			nodes = []client.Node{n}
		} else if nodes, age, err = c.Nodes(cmd.Context()); err != nil {
			return err
		}
		if age > oldAge {
			fmt.Fprintf(r.err, "the node that was asked has heard no coordinator for %s: what it tells of others may be as old, and whom it cannot reach is suspect\n", age.Round(100*time.Millisecond))
		}
		if !r.table() {
			for _, n := range nodes {
				if err := r.line(n.Raw); err != nil {
					return err
				}
			}
			return nil
		}
		table := [][]string{{"NODE", "STATE", "ROLES", "ZONE", "LEADS", "FOLLOWS", "MOVES", "CLIENTS", "DISK USED", "FREE", "HTTP", "VERSION", "ID"}}
		for _, n := range nodes {
			table = append(table, []string{
				n.Name, n.State, rolesOf(n), n.Zone, strconv.Itoa(n.Partitions.Led), strconv.Itoa(n.Partitions.Followed), movesOf(n),
				numberOf(n.Connections), sizeOf(n, func(d *client.Disk) int64 { return d.Used }), sizeOf(n, func(d *client.Disk) int64 { return d.Free }),
				n.Addresses.HTTP, n.Version, n.ID,
			})
		}
		return rows(r.out, table)
	}
	return cmd
}

// rolesOf marks the coordinator that leads the others.
func rolesOf(n client.Node) string {
	roles := make([]string, len(n.Roles))
	for i, role := range n.Roles {
		if role == "coordinator" && n.CoordinatorLeader {
			role += "*"
		}
		roles[i] = role
	}
	return strings.Join(roles, ",")
}

func movesOf(n client.Node) string {
	if len(n.Moves) == 0 {
		return ""
	}
	return strconv.Itoa(len(n.Moves))
}

// numberOf is a figure that only a node that answers has.
func numberOf(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func sizeOf(n client.Node, of func(*client.Disk) int64) string {
	if n.Disk == nil {
		return ""
	}
	return humanBytes(of(n.Disk))
}

// humanBytes is a size with one digit after the point.
func humanBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %siB", v, "KMGTP"[i:i+1])
}
