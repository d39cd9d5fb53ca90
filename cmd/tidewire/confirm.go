package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

// removal is what a delete command is about.
type removal struct {
	name   string            // of what is deleted, typed at the terminal to confirm it
	what   string            // what is lost for good
	does   string            // what the command does to that
	line   map[string]string // what names it in JSON
	delete func(context.Context, *client.Client) error
}

// deletes makes a command a delete command: it asks first, or has --yes, and says at the
// end what is gone.
func deletes(cmd *cobra.Command, p process, removalOf func(args []string) removal) {
	r := addRemote(cmd, p)
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask; needed where nobody can be asked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		gone := removalOf(args)
		if !*yes {
			if err := confirm(r, gone.name, gone.what, gone.does); err != nil {
				return err
			}
		}
		if err := gone.delete(cmd.Context(), c); err != nil {
			return err
		}
		if r.table() {
			_, err = fmt.Fprintf(r.out, "%s deleted\n", visible(gone.name))
			return err
		}
		line := map[string]any{"deleted": true}
		for k, v := range gone.line {
			line[k] = v
		}
		return r.line(line)
	}
}

// confirm asks at the terminal whether something is to be lost for good, by having its
// name typed. Without a terminal the flag --yes must say so.
func confirm(r *remote, name, what, does string) error {
	if !terminal(r.in) || !terminal(r.out) {
		return usagef("%s %s, and there is no terminal to ask at: give --yes to do it", does, what)
	}
	fmt.Fprintf(r.out, "Delete %s? Type %s: ", what, visible(name))
	var answer string
	if _, err := fmt.Fscanln(r.in, &answer); err != nil || answer != name {
		return &exitError{exitFailed, errors.New("nothing was deleted")}
	}
	return nil
}
