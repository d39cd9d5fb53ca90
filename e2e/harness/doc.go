// Package harness runs the built binary as a real process for the tests in
// e2e: on ports that the system picks, in a folder of the test's own, ended
// when the test ends.
package harness
