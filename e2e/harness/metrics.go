package harness

import (
	"strconv"
	"strings"
)

// Metric is the sum of all series of a metric whose labels contain each of
// some texts; 0 if there is none.
func (n *Node) Metric(name string, labels ...string) float64 {
	n.t.Helper()
	status, body := n.Do("GET", "/metrics", "", "")
	if status != 200 {
		n.t.Fatalf("/metrics: %d %s", status, body)
	}
	sum := 0.0
series:
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			n.t.Fatalf("metric %q: %v", line, err)
		}
		sum += v
	}
	return sum
}
