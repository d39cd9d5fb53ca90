package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tidewire/internal/obs"
)

func newVersion(p process) *cobra.Command {
	r := &remote{process: p}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: "  tidewire version --output json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := r.checkOutput(); err != nil {
				return err
			}
			b := obs.ReadBuild(version)
			if !r.table() {
				return r.line(b)
			}
			_, err := fmt.Fprintln(r.out, b)
			return err
		},
	}
	r.addOutput(cmd)
	return cmd
}
