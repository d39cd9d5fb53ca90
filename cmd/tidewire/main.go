// Command tidewire is the whole system in one binary: a node (serve) and what a
// person needs beside it (topic, publish, tail, nodes, log verify, …).
package main

import (
	"os"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	os.Exit(execute(os.Args[1:], process{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), coarsen: coarsenTimers,
	}))
}
