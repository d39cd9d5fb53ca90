//go:build !faults

package main

import "tidewire/internal/rpc"

// linksBetween prepares a dialer for tests that cut and slow the links between nodes,
// and gives what of the environment is left for the settings. This binary knows no
// such thing.
func linksBetween(environ []string) (prepare func(*rpc.Dialer), rest []string) {
	return func(*rpc.Dialer) {}, environ
}
