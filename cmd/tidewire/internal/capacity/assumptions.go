package capacity

import (
	"fmt"
	"math"
)

// Assumption is what a sizing rests on beside the load.
type Assumption struct {
	What string `json:"what"`
	Is   string `json:"is"`
}

// Assumptions says what a sizing rests on.
func Assumptions(c Case, f Figures, s Sizing) (all []Assumption) {
	add := func(what, is string, args ...any) { all = append(all, Assumption{what, fmt.Sprintf(is, args...)}) }
	add("a record costs", "%.1f µs of a processor, as one of %d bytes did; %d here", f.Publish.CPU, f.Publish.Bytes, c.Bytes)
	if c.Replicas > 1 {
		add("each copy of it at another node", "%.1f µs: %d nodes took %.1f µs", f.copy(), f.Replicated.Copies, f.Replicated.CPU)
	}
	if c.Readers > 0 {
		add("a delivery", "%.1f µs, of %d bytes to WebSockets with nothing to write together; its publishing included", f.Delivery.CPU, f.Delivery.Bytes)
	}
	if c.Groups > 0 {
		add("an acknowledged record of a group", "%.1f µs", f.Ack.CPU)
	}
	if c.connections() > 0 {
		i := f.Idle
		add("a connection", "%.0f bytes of memory, %.1f µs of a processor a second idle, %.0f µs to come; measured with %d", i.Memory, i.Cores/micro, i.Connect, i.Connections)
		add("open files", "%.0f a node after the deaths: ulimit -n above that", math.Ceil(s.Demand.Connections/float64(s.Nodes-c.Deaths)))
	}
	add("the disk", "%.1f MB/s in the largest group commit that was measured (a lone sync %.0f µs): larger ones give more", f.Disk.Bytes/1e6, f.Disk.Sync)
	add("a record on disk", "%d bytes beside its value, written %d times (journal, segment) by each replica", KeptOverhead, Writings)
	add("a record at a client", "%d bytes beside its value; an acknowledgement %d", SentOverhead, SmallBytes)
	add("the journal", "%d MiB of a node's disk", journalBytes>>20)
	add("spread", "records, partitions and connections evenly over the nodes; no hot key, no slow reader, no TLS")
	if c.Readers > 0 && s.Nodes > c.Replicas {
		add("not counted", "what a gateway fetches of records that its readers want and it does not keep")
	}
	add("a node", "%g processors like the measured ones; at the most %.0f %% of anything is used, with %d of %d nodes dead", c.Cores, 100*c.Load, c.Deaths, s.Nodes)
	add("clients", "come back after a random time below %g s, doubled with each attempt, to %g s at the most", leastBackoff, float64(mostBackoff))
	return all
}
