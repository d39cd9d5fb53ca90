package capacity

import (
	"fmt"
	"strings"
)

// Arithmetic writes out how a sizing was reckoned, a line for each resource.
func Arithmetic(c Case, f Figures, s Sizing) (all []Assumption) {
	add := func(what, is string, args ...any) { all = append(all, Assumption{what, fmt.Sprintf(is, args...)}) }
	d, kept, sent := s.Demand, c.Bytes+KeptOverhead, c.Bytes+SentOverhead
	add("published", "%s users × %g ÷ 86,400 s + %s/s = %s/s; × %g at the peak = %s/s", Amount(c.Users), c.Messages, Amount(c.Rate), Amount(d.Mean), c.Peak, Amount(d.Published))
	if d.Delivered > 0 {
		add("delivered", "%s/s × %g = %s/s", Amount(d.Published), c.Readers, Amount(d.Delivered))
	}
	if d.Acked > 0 {
		add("acknowledged", "%s/s × %d = %s/s", Amount(d.Published), c.Groups, Amount(d.Acked))
	}
	parts := []string{fmt.Sprintf("%s/s × %.1f µs", Amount(d.Published), f.Publish.CPU)}
	if c.Replicas > 1 {
		parts = append(parts, fmt.Sprintf("%s/s × %d × %.1f µs", Amount(d.Published), c.Replicas-1, f.copy()))
	}
	if d.Delivered > 0 {
		parts = append(parts, fmt.Sprintf("%s/s × %.1f µs", Amount(d.Delivered), f.Delivery.CPU))
	}
	if d.Acked > 0 {
		parts = append(parts, fmt.Sprintf("%s/s × %.1f µs", Amount(d.Acked), f.Ack.CPU))
	}
	if d.Connections > 0 {
		parts = append(parts, fmt.Sprintf("%s × %.1f µs/s", Amount(d.Connections), f.Idle.Cores/micro))
	}
	for _, n := range s.Needs {
		var how, gives string
		switch n.Resource {
		case Processor:
			how, gives = strings.Join(parts, " + "), fmt.Sprintf("%g", c.Cores)
		case Memory:
			how, gives = fmt.Sprintf("%s × %.0f B", Amount(d.Connections), f.idleOr().Memory), "what a node has left"
		case DiskSpace:
			how, gives = fmt.Sprintf("%s/s × %.0f s × %d B × %d", Amount(d.Mean), c.Retention.Seconds(), kept, c.Replicas), "what a node has left"
		case DiskWrite:
			how, gives = fmt.Sprintf("%s/s × %d B × %d × %d", Amount(d.Published), kept, c.Replicas, Writings), "the disk"
		case Wire:
			how, gives = s.wire(&c, sent), "the network"
		}
		add(n.Resource, "%s = %s; ÷ (%s × %g): %d", how, n.quantity(n.Demand), gives, c.Load, n.Nodes)
	}
	add("nodes", "%d for the %s, + %d that may be dead; at least %d, one for each replica, and %d, a majority of coordinators: %d",
		s.most(), s.heaviest(), c.Deaths, c.Replicas, 2*c.Deaths+1, s.Nodes)
	return all
}

// wire is the direction of the network that has more.
func (s *Sizing) wire(c *Case, sent int) string {
	d := s.Demand
	in, out := traffic(c, s)
	if in > out {
		return fmt.Sprintf("in: %s/s × %d B + %s/s × %d B + copies", Amount(d.Published), sent, Amount(d.Acked), SmallBytes)
	}
	return fmt.Sprintf("out: %s/s × %d B + %s/s × %d B + %s/s × %d B + copies", Amount(d.Delivered), sent, Amount(d.Acked), sent+SmallBytes, Amount(d.Published), SmallBytes)
}

// most is how many nodes the heaviest resource takes.
func (s *Sizing) most() (most int) {
	for _, n := range s.Needs {
		most = max(most, n.Nodes)
	}
	return most
}

func (s *Sizing) heaviest() string {
	for _, n := range s.Needs {
		if n.Nodes == s.most() {
			return n.Resource
		}
	}
	return ""
}

// quantity is a demand in its unit.
func (n *Need) quantity(v float64) string {
	switch n.Unit {
	case "cores":
		return fmt.Sprintf("%.2f cores", v)
	case "bytes/s":
		return Bytes(v) + "/s"
	}
	return Bytes(v)
}

// Told are what is asked of all nodes and what one has, in words.
func (n *Need) Told() (demand, node string) { return n.quantity(n.Demand), n.quantity(n.Node) }

// Amount is a number with commas between thousands; a small one has two digits.
func Amount(v float64) string {
	if v < 10 && v != float64(int(v)) {
		return fmt.Sprintf("%.2f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Bytes is a size in powers of 1024, with one digit after the point.
func Bytes(v float64) string {
	unit := 0
	for ; v >= 1024 && unit < 5; unit++ {
		v /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f B", v)
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[unit-1])
}
