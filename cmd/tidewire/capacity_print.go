package main

import (
	"fmt"
	"strconv"
	"time"

	"tidewire/cmd/tidewire/internal/capacity"
)

// capacityFigures is the output as JSON.
type capacityFigures struct {
	Kind        string                `json:"kind"` // capacity
	Case        capacity.Case         `json:"case"`
	Measured    capacity.Figures      `json:"measured"`
	Sizing      capacity.Sizing       `json:"sizing"`
	Simulated   *capacity.Simulated   `json:"simulated,omitempty"`
	Arithmetic  []capacity.Assumption `json:"arithmetic"`
	Assumptions []capacity.Assumption `json:"assumptions"`
}

func (c *capacityFlags) print(f capacity.Figures, s capacity.Sizing, played *capacity.Simulated) error {
	reckoned, assumed := capacity.Arithmetic(c.Case, f, s), capacity.Assumptions(c.Case, f, s)
	if !c.table() {
		return c.line(capacityFigures{"capacity", c.Case, f, s, played, reckoned, assumed})
	}
	d := s.Demand
	fmt.Fprintf(c.out, "%s, for the %s\n", counted(s.Nodes, "node"), s.Binding)
	fmt.Fprintf(c.out, "at the peak %s records/s published (%s in the mean), %s deliveries/s, %s acknowledgements/s, %s connections (%s a node); %s kept\n\n",
		capacity.Amount(d.Published), capacity.Amount(d.Mean), capacity.Amount(d.Delivered), capacity.Amount(d.Acked), capacity.Amount(d.Connections), capacity.Amount(d.Connections/float64(s.Nodes)), capacity.Bytes(d.Stored))
	table := [][]string{{"RESOURCE", "DEMAND", "A NODE HAS", "NODES NEEDED", "USED %", fmt.Sprintf("USED %% WITH %d", s.Nodes-c.Deaths)}}
	for _, n := range s.Needs {
		demand, node := n.Told()
		table = append(table, []string{n.Resource, demand, node, strconv.Itoa(n.Nodes), percent(n.Used), percent(n.Survived)})
	}
	if err := rows(c.out, table); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	fmt.Fprintf(c.out, "between the nodes: %s/s of copies; each node writes %s/s to its disk, journal and segments together\n", capacity.Bytes(s.Replication), capacity.Bytes(c.written(s)))
	fmt.Fprintf(c.out, "room: %.2f times this load, %s records/s published, and %.2f times, %s records/s, with %s\n",
		s.Ceiling, capacity.Amount(s.Ceiling*d.Published), s.CeilingDead, capacity.Amount(s.CeilingDead*d.Published), counted(s.Nodes-c.Deaths, "node"))
	if w := s.Wave; d.Connections > 0 {
		if c.Deaths > 0 {
			fmt.Fprintf(c.out, "after %s: %s connections come back, %s a second to each other node (%s), in %s at the least\n", deaths(c.Deaths), capacity.Amount(w.Connections), capacity.Amount(w.PerNode), w.Bound, seconds(w.Seconds))
		}
		fmt.Fprintf(c.out, "after a stop of all nodes: all are back in %s at the least\n", seconds(w.Everybody))
	}
	if s.Copying != nil {
		fmt.Fprintf(c.out, "the replicas of a lost node are made anew in %s, with what the others have to spare\n", seconds(*s.Copying))
	}
	fmt.Fprintf(c.out, "topics with load: %d partitions or more\n", s.Partitions)
	if played != nil {
		if err := c.printPlayed(*played); err != nil {
			return err
		}
	}
	c.printLines("reckoned", reckoned)
	return c.printLines("assumed", assumed)
}

func (c *capacityFlags) printLines(head string, all []capacity.Assumption) error {
	_, err := fmt.Fprintf(c.out, "\n%s:\n", head)
	for _, a := range all {
		_, err = fmt.Fprintf(c.out, "  %s: %s\n", a.What, a.Is)
	}
	return err
}

// written is what a node writes to its disk a second.
func (c *capacityFlags) written(s capacity.Sizing) float64 {
	for _, n := range s.Needs {
		if n.Resource == capacity.DiskWrite {
			return n.Demand / float64(s.Nodes)
		}
	}
	return 0
}

func (c *capacityFlags) printPlayed(s capacity.Simulated) error {
	fmt.Fprintf(c.out, "\nplayed: %d s with seed %d, bursts of %g times the peak; %s\n", s.Seconds, s.Seed, s.Burst, died(s))
	table := [][]string{{"PHASE", "SECONDS", "PROCESSORS % MEAN", "BUSIEST NODE % P99", "MOST BEHIND s"}}
	for _, p := range []struct {
		name string
		capacity.Phase
	}{{"before", s.Before}, {"clients come back", s.Wave}, {"after", s.After}} {
		if p.Seconds > 0 {
			table = append(table, []string{p.name, fmt.Sprintf("%.1f", p.Seconds), percent(p.Mean), percent(p.P99), fmt.Sprintf("%.2f", p.Behind)})
		}
	}
	if err := rows(c.out, table); err != nil {
		return err
	}
	if s.Clients == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "of %d clients half were back after %s, all after %s; %s, %d refused for the rate\n",
		s.Clients, back(s.Half), back(s.All), counted(s.Attempts, "attempt"), s.Refused)
	return err
}

func died(s capacity.Simulated) string {
	if s.Died == 0 {
		return "nobody dies"
	}
	return fmt.Sprintf("%d of %s after a third of it", s.Died, counted(s.Nodes, "node"))
}

func back(at float64) string {
	if at < 0 {
		return "more time than was played"
	}
	return seconds(at)
}

func deaths(n int) string {
	if n == 1 {
		return "the death of a node"
	}
	return fmt.Sprintf("the death of %d nodes", n)
}

func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// seconds is a time with as many digits as matter.
func seconds(v float64) string {
	if v < 120 {
		return fmt.Sprintf("%.1f s", v)
	}
	return time.Duration(v * float64(time.Second)).Round(time.Minute).String()
}
