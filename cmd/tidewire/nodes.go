package main

import (
	"strings"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

func newNodes(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes [NODE]",
		Short: "List the nodes, or show one",
		Example: `  tidewire nodes
  tidewire nodes --output json | jq .`,
		Args: oneNode,
	}
	r := addRemote(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		var nodes []client.Node
		if len(args) == 1 {
			n, err := c.Node(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			nodes = []client.Node{n}
		} else if nodes, err = c.Nodes(cmd.Context()); err != nil {
			return err
		}
		if !r.table() {
			for _, n := range nodes {
				if err := r.line(n.Raw); err != nil {
					return err
				}
			}
			return nil
		}
		table := [][]string{{"NODE", "STATE", "ROLES", "ZONE", "HTTP", "VERSION", "ID"}}
		for _, n := range nodes {
			table = append(table, []string{n.Name, n.State, strings.Join(n.Roles, ","), n.Zone, n.Addresses.HTTP, n.Version, n.ID})
		}
		return rows(r.out, table)
	}
	return cmd
}
