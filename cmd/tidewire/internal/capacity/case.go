package capacity

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Case is a load, and the machines that are to carry it.
type Case struct {
	Users     float64       `json:"users"`                     // a day
	Online    float64       `json:"online"`                    // share of them that is connected at the peak
	Messages  float64       `json:"messages_per_user"`         // a day
	Rate      float64       `json:"records_per_second"`        // besides, in the mean
	Peak      float64       `json:"peak"`                      // the busiest hour, in times of the mean
	Bytes     int           `json:"bytes"`                     // of a value
	Readers   float64       `json:"readers"`                   // connections that get a record
	Groups    int           `json:"groups"`                    // that work through all records
	Replicas  int           `json:"replicas"`                  // nodes that keep a record
	Retention time.Duration `json:"-"`                         // of records
	Deaths    int           `json:"deaths"`                    // nodes that may be dead while the rest carries all
	Load      float64       `json:"load"`                      // share of a node that is used at the most
	Cores     float64       `json:"cores"`                     // of a node, as those that were measured
	Memory    float64       `json:"memory_bytes"`              // of a node
	Disk      float64       `json:"disk_bytes"`                // of a node
	Network   float64       `json:"network_bits_per_second"`   // of a node, each way
	Admitted  int           `json:"connections_admitted"`      // max_connection_rate, of a node
	Hours     float64       `json:"retention_hours,omitempty"` // Retention again, for the output
}

// What a record takes beside its value.
const (
	// KeptOverhead is of a record on disk and between nodes: about its part of a batch's
	// header, key, content type and headers.
	KeptOverhead = 64
	// SentOverhead is of a delivery or a publish at a client: the JSON around the value,
	// the frame, TCP and IP.
	SentOverhead = 250
	// Writings is how often a node writes a record: to its journal and to a segment.
	Writings = 2
	// SmallBytes is an acknowledgement, or an answer, on the wire.
	SmallBytes = 150
)

// MaxNodes is more than anybody asks for: what needs more is answered by an error.
const MaxNodes = 10_000

// connections at the peak.
func (c *Case) connections() float64 { return c.Users * c.Online }

// mean is records a second.
func (c *Case) mean() float64 { return c.Users*c.Messages/86400 + c.Rate }

// Check joins what is wrong with a case.
func (c *Case) Check() error {
	var faults []error
	in := func(flag string, v, low, high float64) {
		if !(v >= low && v <= high) { // what is no number is not either
			faults = append(faults, fmt.Errorf("--%s: %v is not between %v and %v", flag, v, low, high))
		}
	}
	in("users", c.Users, 0, 1e10)
	in("online", c.Online, 0, 1)
	in("messages", c.Messages, 0, 1e6)
	in("rate", c.Rate, 0, 1e9)
	in("peak", c.Peak, 1, 1000)
	in("bytes", float64(c.Bytes), 1, 16<<20)
	in("readers", c.Readers, 0, 1e9)
	in("groups", float64(c.Groups), 0, 1e4)
	in("replicas", float64(c.Replicas), 1, 9)
	in("deaths", float64(c.Deaths), 0, 9)
	in("load", c.Load, 0.05, 1)
	in("cores", c.Cores, 0.1, 1024)
	in("max-connection-rate", float64(c.Admitted), 1, 1e6)
	for flag, v := range map[string]float64{"memory": c.Memory, "disk": c.Disk, "network": c.Network} {
		in(flag, v, 1<<20, math.MaxInt64)
	}
	if c.Retention < 0 || c.Retention > 100*365*24*time.Hour {
		faults = append(faults, errors.New("--retention: a time from 0 to a hundred years"))
	}
	if c.Deaths >= c.Replicas && c.Deaths > 0 {
		faults = append(faults, fmt.Errorf("--deaths: with %d nodes dead all %d replicas of some records may be gone; give more --replicas", c.Deaths, c.Replicas))
	}
	if c.mean() == 0 && c.connections() == 0 {
		faults = append(faults, errors.New("there is no load: give --users with --online or --messages, or --rate"))
	}
	return errors.Join(faults...)
}
