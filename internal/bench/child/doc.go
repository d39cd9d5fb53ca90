// Package child runs the processes that a benchmark measures: this same binary
// as a server, or as one of the floors, or another system's server. A child has a
// process group of its own, so that Ctrl-C reaches the benchmark alone, which then ends
// it; and where the benchmark itself is killed, the kernel ends the child.
package child
