package capacity

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Figures are what was measured. Times are microseconds of processor time of all nodes
// together.
type Figures struct {
	Publish    *Work `json:"publish"`    // a record that one node keeps
	Replicated *Work `json:"replicated"` // one that several keep
	Delivery   *Work `json:"delivery"`   // to one reader
	Ack        *Work `json:"ack"`        // of a record by a group
	Idle       *Idle `json:"idle"`
	Disk       *Disk `json:"disk"`
}

// Work is what a message costs.
type Work struct {
	CPU    float64 `json:"cpu_us"`
	Bytes  int     `json:"bytes"`  // of its value; 0: not told
	Copies int     `json:"copies"` // nodes that keep it
	Rate   float64 `json:"per_second"`
}

// Idle is what a connection costs that does nothing.
type Idle struct {
	Memory      float64 `json:"memory_bytes"`
	Base        float64 `json:"base_memory_bytes"` // of a node without one
	Cores       float64 `json:"cores"`
	Connect     float64 `json:"connect_cpu_us"` // to come
	Connections int     `json:"measured_with"`
}

// Disk is how quickly records are synced, all in flight at once.
type Disk struct {
	Bytes float64 `json:"bytes_per_second"`
	Sync  float64 `json:"sync_p50_us"` // of one record alone
}

// line is what a benchmark printed, as far as it matters here.
type line struct {
	Kind      string  `json:"kind"`
	Bench     string  `json:"bench"`
	Floor     string  `json:"floor"`
	Best      bool    `json:"best"`
	Bytes     int     `json:"bytes"`
	PerSecond float64 `json:"per_second"`
	Messages  int64   `json:"messages"`
	Load      *struct {
		Nodes     *int    `json:"nodes"`
		Bytes     int     `json:"bytes"`
		Transport string  `json:"transport"`
		Acks      *string `json:"acks"`
	} `json:"load"`
	Latency *struct {
		P50 float64 `json:"p50"`
	} `json:"latency_us"`
	Server *struct {
		CPU float64 `json:"cpu_us"`
	} `json:"server"`

	Connections int      `json:"connections"`
	RSSEach     *float64 `json:"rss_bytes_each"`
	IdleCores   *float64 `json:"idle_cores"`
	ConnectCPU  float64  `json:"connect_cpu_us"`
	Snapshots   []struct {
		RSS int64 `json:"rss_bytes"`
	} `json:"snapshots"`
}

// keptBy is how many nodes keep a record of a benchmark, where there are as many.
const keptBy = 3

// singleRecord is the floor that syncs one record at a time, by its name.
const singleRecord = "write + fdatasync"

// Read takes in the lines of benchmarks, of any number of files one after the other. Of each
// benchmark the best run counts, of several that measure the same thing the dearest.
func (f *Figures) Read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	record := 0 // bytes of the floor's records, in the benchmark that is read
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is no JSON of a benchmark: %w", n, err)
		}
		switch {
		case l.Kind == "floor":
			record = f.floor(&l, record)
		case l.Kind == "run" && l.Best:
			if err := f.run(&l); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		case l.Kind == "connections" && l.RSSEach != nil:
			f.idle(&l)
		}
	}
	return lines.Err()
}

// floor takes in a floor of a disk. Records are written to one file alone where the first
// floor of a benchmark is followed by the one that writes all in flight.
func (f *Figures) floor(l *line, record int) int {
	switch {
	case l.Floor == singleRecord:
		f.disk(float64(l.Bytes)*l.PerSecond, l)
		return l.Bytes
	case l.Connections > 0 || l.Floor == "": // a server's
		return record
	case l.Bytes == record: // one record on several files
		return 0
	case record > 0:
		f.disk(float64(record)*l.PerSecond, nil)
	}
	return record
}

// disk notes what a disk gave; single is of one record.
func (f *Figures) disk(bytes float64, single *line) {
	if f.Disk == nil {
		f.Disk = &Disk{}
	}
	f.Disk.Bytes = max(f.Disk.Bytes, bytes)
	if single != nil && single.Latency != nil {
		f.Disk.Sync = max(f.Disk.Sync, single.Latency.P50)
	}
}

func (f *Figures) run(l *line) error {
	to := map[string]**Work{"publish": &f.Publish, "fanout": &f.Delivery, "groups": &f.Ack}[l.Bench]
	switch {
	case to == nil, l.Load != nil && l.Load.Acks != nil && *l.Load.Acks != "all":
		return nil
	case l.Server == nil:
		return fmt.Errorf("bench %s did not know the server's process: measure with --spawn or --server-pid", l.Bench)
	case l.Load == nil || l.Load.Nodes == nil:
		return fmt.Errorf("bench %s does not say how many nodes there were: an older version printed it; measure again", l.Bench)
	}
	w := Work{CPU: l.Server.CPU, Bytes: l.Load.Bytes, Copies: min(*l.Load.Nodes, keptBy), Rate: l.PerSecond}
	if l.Bench == "publish" && w.Copies > 1 {
		to = &f.Replicated
	}
	if *to == nil || (*to).CPU < w.CPU {
		*to = &w
	}
	return nil
}

func (f *Figures) idle(l *line) {
	i := Idle{Memory: *l.RSSEach, Connect: l.ConnectCPU, Connections: l.Connections}
	if l.IdleCores != nil {
		i.Cores = *l.IdleCores / float64(max(l.Connections, 1))
	}
	if len(l.Snapshots) > 0 {
		i.Base = float64(l.Snapshots[0].RSS)
	}
	if f.Idle == nil || f.Idle.Memory < i.Memory {
		f.Idle = &i
	}
}

// copy is what a copy of a record at another node costs, in µs; it needs Publish and
// Replicated.
func (f *Figures) copy() float64 {
	more := f.Replicated.CPU - f.Publish.CPU
	return max(0, more/float64(max(f.Replicated.Copies-1, 1)))
}

// check joins what a case needs and was not measured, with the command that measures it.
func (f *Figures) check(c *Case) error {
	var faults []error
	lack := func(is bool, what, command string) {
		if is {
			faults = append(faults, fmt.Errorf("there is no figure of %s: tidewire bench %s --output json", what, command))
		}
	}
	lack(f.Publish == nil, "publishing to one node", "publish --spawn")
	lack(f.Disk == nil, "the disk", "publish --spawn")
	lack(c.Replicas > 1 && f.Replicated == nil, "publishing to several nodes", "publish --spawn --nodes 3 --partitions 6")
	lack(c.Readers > 0 && f.Delivery == nil, "deliveries", "fanout --spawn")
	lack(c.Groups > 0 && f.Ack == nil, "acknowledgements", "groups --spawn")
	lack(c.connections() > 0 && f.Idle == nil, "idle connections", "connections --spawn")
	for _, w := range []*Work{f.Publish, f.Replicated, f.Delivery, f.Ack} {
		if w != nil && !(w.CPU > 0 && !math.IsInf(w.CPU, 0)) {
			faults = append(faults, fmt.Errorf("a message that costs %v µs is not believed: let the benchmark run for longer", w.CPU))
		}
	}
	return errors.Join(faults...)
}
