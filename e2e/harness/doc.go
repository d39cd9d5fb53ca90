// Package harness runs the built binary as real processes for the tests in e2e:
// on ports that stay the test's own while a node is down, in folders of its own,
// ended when the test ends.
//
// A Node is one process; a Cluster is several that form one, which a test kills,
// pauses, wipes and asks how they stand. Links are the connections between them
// in the hands of the test: binaries with the tag faults dial through them.
package harness
