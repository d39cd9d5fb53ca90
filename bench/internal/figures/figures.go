// Package figures is the arithmetic of the comparison: medians, ratios pair by pair, and
// whether a bar holds. It is values alone.
package figures

import (
	"math"
	"slices"

	"tidewire/bench/internal/plan"
)

// Sample is what one run came to, by metric. Err says why there is none.
type Sample struct {
	Values map[plan.Metric]float64 `json:"values,omitempty"`
	Err    string                  `json:"error,omitempty"`
}

// Failed is the sample of a run that failed.
func Failed(err error) Sample { return Sample{Err: err.Error()} }

// Results has the samples of a case and system, one a repetition and in their order.
type Results map[string]map[plan.System][]Sample

// Add notes the sample of the next repetition.
func (r Results) Add(name string, s plan.System, x Sample) {
	if r[name] == nil {
		r[name] = map[plan.System][]Sample{}
	}
	r[name][s] = append(r[name][s], x)
}

// Spread is a median with the least and the most beside it.
type Spread struct {
	Median, Min, Max float64
	N                int // 0: there is nothing
}

// Of summarises values.
func Of(all []float64) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{median, sorted[0], sorted[len(sorted)-1], len(sorted)}
}

// Spread summarises one metric.
func (r Results) Spread(of plan.Of) Spread {
	var all []float64
	for _, x := range r[of.Case][of.System] {
		if v, ok := x.Values[of.Metric]; ok {
			all = append(all, v)
		}
	}
	return Of(all)
}

// Ratio divides a metric by another, repetition by repetition, and summarises what comes
// of the pairs that are whole.
func (r Results) Ratio(ours, theirs plan.Of) Spread {
	a, b := r[ours.Case][ours.System], r[theirs.Case][theirs.System]
	var all []float64
	for i := range min(len(a), len(b)) {
		x, there := a[i].Values[ours.Metric]
		y, too := b[i].Values[theirs.Metric]
		if there && too && y != 0 {
			all = append(all, x/y)
		}
	}
	return Of(all)
}

// Failures are the errors of a case and system, each once.
func (r Results) Failures(name string, s plan.System) (all []string) {
	for _, x := range r[name][s] {
		if x.Err != "" && !slices.Contains(all, x.Err) {
			all = append(all, x.Err)
		}
	}
	return all
}

// Failed reports a run that failed.
func (r Results) Failed() bool {
	for _, systems := range r {
		for _, samples := range systems {
			if slices.ContainsFunc(samples, func(x Sample) bool { return x.Err != "" }) {
				return true
			}
		}
	}
	return false
}

// Verdict is what came of a bar.
type Verdict struct {
	Bar    plan.Bar
	Spread Spread // of the ratio, or of the figure itself
	Held   bool   // by the median; of what may not be at all, by the worst
}

// Judge holds results to a bar.
func (r Results) Judge(b plan.Bar) Verdict {
	v := Verdict{Bar: b}
	if b.Theirs.Case == "" {
		v.Spread = r.Spread(b.Ours)
	} else {
		v.Spread = r.Ratio(b.Ours, b.Theirs)
	}
	switch {
	case v.Spread.N == 0:
	case b.AtLeast:
		v.Held = v.Spread.Median >= b.Limit
	case b.Limit == 0:
		v.Held = v.Spread.Max <= 0
	default:
		v.Held = v.Spread.Median <= b.Limit
	}
	return v
}

// Round keeps three significant digits: the rest is noise.
func Round(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	p := math.Pow10(2 - int(math.Floor(math.Log10(math.Abs(v)))))
	return math.Round(v*p) / p
}

// Replace takes over the results of cases and systems that were measured again.
func (r Results) Replace(fresh Results) {
	for name, systems := range fresh {
		if r[name] == nil {
			r[name] = map[plan.System][]Sample{}
		}
		for s, samples := range systems {
			r[name][s] = samples
		}
	}
}
