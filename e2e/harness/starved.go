package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// mostStarved bounds what a bound of time is widened by: threads that wait for a core at
// the same time count each, and a test has to end.
const mostStarved = time.Minute

// Starved measures from now on how long the machine keeps one of the nodes' processes, or
// the test's own, waiting for a core: the most of any of them, over all its threads. It is
// to be added to a bound of time, which is then one of the nodes and not of the machine.
// The bounds of make soak are for a machine that does nothing else, and hold as they are.
func Starved(nodes ...*Node) (so func() time.Duration) {
	if Soak() {
		return func() time.Duration { return 0 }
	}
	before := runDelays(nodes)
	return func() (most time.Duration) {
		for pid, delay := range runDelays(nodes) {
			most = max(most, delay-before[pid]) // all of a process that began meanwhile
		}
		return min(most, mostStarved)
	}
}

// Starved is Starved for all nodes of the cluster.
func (c *Cluster) Starved() (so func() time.Duration) {
	var nodes []*Node
	for _, m := range c.Members {
		nodes = append(nodes, m.Node)
	}
	return Starved(nodes...)
}

func runDelays(nodes []*Node) map[int]time.Duration {
	all := map[int]time.Duration{os.Getpid(): runDelay(os.Getpid())}
	for _, n := range nodes {
		if n.Running() {
			all[n.Pid()] = runDelay(n.Pid())
		}
	}
	return all
}

// runDelay is how long the threads of a process were ready to run and had no core; 0
// where the kernel does not tell, and of threads that have ended.
func runDelay(pid int) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(b)) // time on a core, time without one, turns
		if len(fields) != 3 {
			continue
		}
		if ns, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum
}
