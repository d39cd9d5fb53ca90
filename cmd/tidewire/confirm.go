package main

import (
	"errors"
	"fmt"
)

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
