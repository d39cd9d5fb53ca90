package capacity

import (
	"fmt"
	"math"
)

// Demand is what all records and connections take together, at the peak.
type Demand struct {
	Published   float64 `json:"published_per_second"`
	Mean        float64 `json:"published_per_second_mean"`
	Delivered   float64 `json:"delivered_per_second"`
	Acked       float64 `json:"acked_per_second"`
	Connections float64 `json:"connections"`
	Stored      float64 `json:"stored_bytes"` // of all replicas
}

// Need is one resource.
type Need struct {
	Resource string  `json:"resource"`
	Unit     string  `json:"unit"`
	Demand   float64 `json:"demand"`    // of all nodes together
	Node     float64 `json:"node"`      // what one gives, at its full load
	Nodes    int     `json:"nodes"`     // that carry the demand at the load that is allowed
	Used     float64 `json:"used"`      // share of all nodes
	Survived float64 `json:"used_dead"` // and of those that are left after the deaths
}

// The resources.
const (
	Processor = "processor"
	Memory    = "memory"
	DiskSpace = "disk space"
	DiskWrite = "disk writes"
	Wire      = "network"
	// Copies and Majority bind where no resource takes more nodes than records are kept by,
	// or than leave a majority of coordinators.
	Copies   = "number of replicas"
	Majority = "majority of coordinators"
)

// Sizing is what a case takes.
type Sizing struct {
	Demand  Demand `json:"demand"`
	Needs   []Need `json:"needs"`
	Nodes   int    `json:"nodes"`
	Binding string `json:"binding"` // what takes most nodes
	// Ceiling and CeilingDead are how many times this load all nodes carry at the load that
	// is allowed, and those that are left after the deaths.
	Ceiling     float64 `json:"ceiling"`
	CeilingDead float64 `json:"ceiling_dead"`
	Parts       Parts   `json:"processor_parts"`
	Wave        Wave    `json:"wave"`
	// Replication is bytes a second between the nodes.
	Replication float64 `json:"replication_bytes_per_second"`
	// Copying is how long the replicas of one node take to be made elsewhere, in seconds;
	// null: nothing is kept elsewhere, or there is nowhere.
	Copying *float64 `json:"copying_seconds"`
	// Partitions is the least a topic has, so that every node leads some.
	Partitions int `json:"partitions"`
}

// Parts are the processors kept busy at the peak, by what for.
type Parts struct {
	Publishing  float64 `json:"publishing"`
	Replication float64 `json:"replication"`
	Deliveries  float64 `json:"deliveries"`
	Acks        float64 `json:"acks"`
	Idle        float64 `json:"idle_connections"`
}

func (p Parts) sum() float64 {
	return p.Publishing + p.Replication + p.Deliveries + p.Acks + p.Idle
}

// Wave is what comes back from nodes that died.
type Wave struct {
	Connections float64 `json:"connections"`        // of those nodes
	PerNode     float64 `json:"per_second_each"`    // taken in by each that is left
	Bound       string  `json:"bound"`              // by what
	Seconds     float64 `json:"seconds"`            // until the last is in, if none waits longer than it must
	Everybody   float64 `json:"seconds_after_stop"` // where all nodes were down
}

// journalBytes is what the journal of a node takes at the most.
const journalBytes = 1 << 30

const micro = 1e-6

// Size reckons. An error says what is missing, or that no number of nodes carries it.
func Size(c Case, f Figures) (Sizing, error) {
	if err := c.Check(); err != nil {
		return Sizing{}, err
	}
	if err := f.check(&c); err != nil {
		return Sizing{}, err
	}
	var s Sizing
	d := &s.Demand
	kept := float64(c.Bytes + KeptOverhead)
	*d = Demand{Mean: c.mean(), Connections: c.connections()}
	d.Published = d.Mean * c.Peak
	d.Delivered, d.Acked = d.Published*c.Readers, d.Published*float64(c.Groups)
	d.Stored = d.Mean * c.Retention.Seconds() * kept * float64(c.Replicas)
	s.Parts = parts(&c, &f, d)
	s.Replication = d.Published * kept * float64(c.Replicas-1)

	in, out := traffic(&c, &s)
	idle := f.idleOr()
	s.Needs = []Need{
		{Resource: Processor, Unit: "cores", Demand: s.Parts.sum(), Node: c.Cores},
		{Resource: Memory, Unit: "bytes", Demand: d.Connections * idle.Memory, Node: c.Memory - idle.Base/c.Load},
		{Resource: DiskSpace, Unit: "bytes", Demand: d.Stored, Node: c.Disk - journalBytes/c.Load},
		{Resource: DiskWrite, Unit: "bytes/s", Demand: d.Published * kept * float64(c.Replicas) * Writings, Node: f.Disk.Bytes},
		{Resource: Wire, Unit: "bytes/s", Demand: max(in, out), Node: c.Network / 8},
	}
	for i := range s.Needs {
		n := &s.Needs[i]
		if n.Node <= 0 {
			return s, fmt.Errorf("%s: a node of this size has none left beside what it takes itself", n.Resource)
		}
		need := math.Ceil(n.Demand / (n.Node * c.Load))
		if need > MaxNodes {
			return s, fmt.Errorf("%s: it would take %.0f nodes of this size, more than the %d this reckons with", n.Resource, need, MaxNodes)
		}
		n.Nodes = max(1, int(need))
	}
	// As many nodes as keep a record, and as many coordinators as leave a majority.
	loaded, least := s.most()+c.Deaths, max(c.Replicas, 2*c.Deaths+1)
	switch s.Nodes = max(loaded, least); {
	case loaded >= least && s.most() > 1:
		s.Binding = s.heaviest()
	case c.Replicas < least:
		s.Binding = Majority
	default:
		s.Binding = Copies
	}
	alive := s.Nodes - c.Deaths
	s.Ceiling, s.CeilingDead = math.Inf(1), math.Inf(1)
	for i := range s.Needs {
		n := &s.Needs[i]
		n.Used, n.Survived = n.Demand/(n.Node*float64(s.Nodes)), n.Demand/(n.Node*float64(alive))
		if n.Demand > 0 {
			s.Ceiling, s.CeilingDead = min(s.Ceiling, c.Load/n.Used), min(s.CeilingDead, c.Load/n.Survived)
		}
	}
	s.Wave = wave(&c, idle, &s)
	s.Copying = copying(&c, &s)
	s.Partitions = min(2*s.Nodes, 256)
	return s, nil
}

// traffic is bytes a second that come to all nodes and leave them, copies included.
func traffic(c *Case, s *Sizing) (in, out float64) {
	d, sent := &s.Demand, float64(c.Bytes+SentOverhead)
	in = d.Published*sent + d.Acked*SmallBytes + s.Replication
	out = d.Delivered*sent + d.Acked*(sent+SmallBytes) + d.Published*SmallBytes + s.Replication
	return in, out
}

func (f *Figures) idleOr() Idle {
	if f.Idle == nil {
		return Idle{}
	}
	return *f.Idle
}

func parts(c *Case, f *Figures, d *Demand) (p Parts) {
	p.Publishing = d.Published * f.Publish.CPU * micro
	if c.Replicas > 1 {
		p.Replication = d.Published * f.copy() * float64(c.Replicas-1) * micro
	}
	if d.Delivered > 0 {
		p.Deliveries = d.Delivered * f.Delivery.CPU * micro
	}
	if d.Acked > 0 {
		p.Acks = d.Acked * f.Ack.CPU * micro
	}
	p.Idle = d.Connections * f.idleOr().Cores
	return p
}

// wave is how the clients of nodes that died come back to the others.
func wave(c *Case, idle Idle, s *Sizing) (w Wave) {
	alive := float64(s.Nodes - c.Deaths)
	w.Connections = s.Demand.Connections * float64(c.Deaths) / float64(s.Nodes)
	admits := func(busy float64) (float64, string) {
		rate, bound := float64(c.Admitted), "max_connection_rate"
		if idle.Connect > 0 {
			if spare := max(c.Cores-busy, 0.05*c.Cores) / (idle.Connect * micro); spare < rate {
				rate, bound = spare, Processor
			}
		}
		return rate, bound
	}
	w.PerNode, w.Bound = admits(s.Parts.sum() / alive)
	w.Seconds = w.Connections / (w.PerNode * alive)
	fresh, _ := admits(0)
	w.Everybody = s.Demand.Connections / (fresh * float64(s.Nodes))
	return w
}

// copying is how long the replicas of one node take to be made at others, at what these have
// to spare of disk and network.
func copying(c *Case, s *Sizing) *float64 {
	others := float64(s.Nodes - 1)
	if c.Replicas < 2 || s.Nodes <= c.Replicas {
		return nil
	}
	var disk, wire float64
	for _, n := range s.Needs {
		switch n.Resource {
		case DiskWrite:
			disk = max(n.Node-n.Demand/others, 0.05*n.Node) / Writings
		case Wire:
			wire = max(n.Node-n.Demand/others, 0.05*n.Node)
		}
	}
	seconds := s.Demand.Stored / float64(s.Nodes) / (min(disk, wire) * others)
	return &seconds
}
