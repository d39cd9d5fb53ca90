// Package memgroup is consumer groups in memory: a coordinator that keeps them and brokers
// that deliver their records, over logs in memory. It is for tests of what stands before
// them. Sessions end when a test says so; a partition that is to be given up goes to its
// next owner when it is released, or nothing of it is leased any more.
package memgroup
