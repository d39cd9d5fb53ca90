package figure

import (
	"slices"
	"time"

	"tidewire/internal/bench/proc"
)

// Count is what was counted in a stretch of time.
type Count struct {
	Messages   int64 // acknowledged, or delivered
	Refused    int64
	Lost       int64
	Duplicates int64
	Latency    *Latency
	Late       *Latency // of an open loop: how late the load generator was
}

// Run is one run of a load: a count, how long it took and what it cost.
type Run struct {
	Run       int      `json:"run"` // from 1 on
	Seconds   float64  `json:"seconds"`
	Messages  int64    `json:"messages"`
	PerSecond float64  `json:"per_second"`
	Refused   int64    `json:"refused"`
	Lost      int64    `json:"lost"`
	Dupes     int64    `json:"duplicates"`
	Latency   *Latency `json:"latency_us"`        // null: nothing arrived
	Late      *Latency `json:"late_us,omitempty"` // of the load generator's own sends
	Server    *Cost    `json:"server"`            // null: its process is not known
	Generator Cost     `json:"generator"`
	Best      bool     `json:"best"`
}

// Cost is what a process used per message.
type Cost struct {
	CPU      float64 `json:"cpu_us"`   // user and system
	Switches float64 `json:"switches"` // context switches
	Reads    float64 `json:"reads"`    // system calls that read; -1: not told
	Writes   float64 `json:"writes"`   // and that wrote
	Cores    float64 `json:"cores"`    // of processor it kept busy
}

// NewCost shares what was used out among messages.
func NewCost(used proc.Sample, messages int64, took time.Duration) Cost {
	per := func(n float64) float64 { return round(n/float64(max(messages, 1)), 3) }
	c := Cost{
		CPU: per(float64(used.CPU) / 1e3), Switches: per(float64(used.Switches)), Reads: -1, Writes: -1,
		Cores: round(used.CPU.Seconds()/max(took.Seconds(), 1e-9), 2),
	}
	if used.Reads >= 0 {
		c.Reads, c.Writes = per(float64(used.Reads)), per(float64(used.Writes))
	}
	return c
}

// NewRun puts a run together. server is nil where its process is not known.
func NewRun(number int, took time.Duration, c Count, server *proc.Sample, generator proc.Sample) Run {
	r := Run{
		Run: number, Seconds: round(took.Seconds(), 3), Messages: c.Messages, PerSecond: round(float64(c.Messages)/max(took.Seconds(), 1e-9), 1),
		Refused: c.Refused, Lost: c.Lost, Dupes: c.Duplicates, Latency: c.Latency, Late: c.Late,
		Generator: NewCost(generator, c.Messages, took),
	}
	if server != nil {
		cost := NewCost(*server, c.Messages, took)
		r.Server = &cost
	}
	return r
}

// LateShare is how much of the growth of the p99 from a run to the one beside it the
// load generator's own lateness is, by the median of all pairs in which it grew; 0
// without one.
func LateShare(plain, beside []Run) float64 {
	var all []float64
	for i := range min(len(plain), len(beside)) {
		a, z := plain[i], beside[i]
		if a.Latency == nil || z.Latency == nil || a.Late == nil || z.Late == nil {
			continue
		}
		if grown := z.Latency.P99 - a.Latency.P99; grown > 0 {
			all = append(all, max(0, z.Late.P99-a.Late.P99)/grown)
		}
	}
	return median(all)
}

// median is of an even number the mean of the two in the middle; 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return round((all[middle-1]+all[middle])/2, 3)
	}
	return round(all[middle], 3)
}

// MedianGrowth is how many times the p99 of a run grew in the run beside it, by
// the median of all pairs; 0 without a pair.
func MedianGrowth(plain, beside []Run) float64 {
	var all []float64
	for i := range min(len(plain), len(beside)) {
		if a, z := plain[i].Latency, beside[i].Latency; a != nil && z != nil && a.P99 > 0 {
			all = append(all, z.P99/a.P99)
		}
	}
	return median(all)
}

// Short is how many runs of an open loop had not as many messages as they are
// to have, those that were refused included.
func Short(runs []Run, wanted float64) (n int) {
	for _, r := range runs {
		if float64(r.Messages+r.Refused) < keptRate*wanted*r.Seconds {
			n++
		}
	}
	return n
}

// keptRate is how much of its rate a run of an open loop must have kept to be the
// best: one in which little arrived may have had the best latency.
const keptRate = 0.98

// MarkBest marks the best run: of an open loop, whose messages a second are
// wanted, the one with the lowest p99 among those that kept the rate; of a closed
// loop (wanted is 0), or where none kept it, the quickest. It returns its index;
// -1 where nothing was kept in any run.
func MarkBest(runs []Run, wanted float64) int {
	best, kept := -1, false
	for i, r := range runs {
		if r.PerSecond == 0 {
			continue
		}
		keeps := wanted > 0 && r.Latency != nil && r.PerSecond >= keptRate*wanted
		switch {
		case best < 0, keeps && !kept:
			best, kept = i, keeps
		case keeps && r.Latency.P99 < runs[best].Latency.P99, !keeps && !kept && r.PerSecond > runs[best].PerSecond:
			best = i
		}
	}
	if best >= 0 {
		runs[best].Best = true
	}
	return best
}
