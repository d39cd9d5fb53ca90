package figure_test

import (
	"testing"
	"time"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/proc"
)

func TestPercentiles(t *testing.T) {
	a, b := figure.NewHistogram(), figure.NewHistogram()
	if a.Latency() != nil {
		t.Error("an empty histogram has percentiles")
	}
	for i := range int64(1000) {
		to := a
		if i%2 == 0 {
			to = b
		}
		to.Record((i + 1) * int64(time.Microsecond))
	}
	a.Add(b)
	a.Record(int64(time.Hour)) // counts as the longest
	l := a.Latency()
	for what, pair := range map[string][2]float64{"p50": {l.P50, 501}, "p90": {l.P90, 901}, "p99": {l.P99, 991}, "p999": {l.P999, 1000}, "max": {l.Max, 120e6}} {
		if got, want := pair[0], pair[1]; got < want*0.998 || got > want*1.002 {
			t.Errorf("%s is %v, want about %v", what, got, want)
		}
	}
	a.Reset()
	if a.Latency() != nil {
		t.Error("a histogram keeps what it had after Reset")
	}
}

func TestARunSharesItsCostOut(t *testing.T) {
	used := proc.Sample{CPU: 2 * time.Second, Switches: 500, Reads: 1000, Writes: 4000}
	r := figure.NewRun(3, 4*time.Second, figure.Count{Messages: 200_000}, &used, proc.Sample{CPU: time.Second, Reads: -1})
	if r.Run != 3 || r.PerSecond != 50_000 || r.Server.CPU != 10 || r.Server.Cores != 0.5 || r.Server.Writes != 0.02 || r.Generator.CPU != 5 || r.Generator.Reads != -1 {
		t.Errorf("%+v, server %+v", r, *r.Server)
	}
	// Nothing arrived: no division by nothing, and no server where it is not known.
	if r := figure.NewRun(1, 0, figure.Count{}, nil, used); r.Server != nil || r.PerSecond != 0 || r.Latency != nil {
		t.Errorf("%+v", r)
	}
}

func TestTheBestRun(t *testing.T) {
	p99 := func(v float64) *figure.Latency { return &figure.Latency{P99: v} }
	runs := func() []figure.Run {
		return []figure.Run{
			{PerSecond: 10, Latency: p99(1)}, {PerSecond: 33, Latency: p99(9)}, {PerSecond: 40}, {PerSecond: 29.9, Latency: p99(2)}, {PerSecond: 30, Latency: p99(3)},
		}
	}
	for _, c := range []struct {
		wanted float64
		want   int
	}{
		{0, 2},
		{30, 3},
		{1000, 2}, // nobody kept it
	} {
		all := runs()
		if got := figure.MarkBest(all, c.wanted); got != c.want || !all[c.want].Best {
			t.Errorf("%g wanted: run %d is the best, want %d", c.wanted, got, c.want)
		}
	}
	for _, none := range [][]figure.Run{nil, {{Refused: 9}, {Refused: 7}}} {
		if got := figure.MarkBest(none, 0); got != -1 {
			t.Errorf("the best of none that kept anything is %d", got)
		}
	}
}

func TestRunsThatDidNotKeepTheirRate(t *testing.T) {
	runs := []figure.Run{{Messages: 200, Seconds: 2}, {Messages: 100, Refused: 100, Seconds: 2}, {Messages: 190, Seconds: 2}}
	if got := figure.Short(runs, 100); got != 1 {
		t.Errorf("%d runs had less than their rate, want 1", got)
	}
	if got := figure.Short(runs, 0); got != 0 {
		t.Errorf("%d runs of a closed loop had less than their rate", got)
	}
}

func TestTheGeneratorsShareOfAGrowth(t *testing.T) {
	run := func(p99, late float64) figure.Run {
		return figure.Run{Latency: &figure.Latency{P99: p99}, Late: &figure.Latency{P99: late}}
	}
	for _, c := range []struct {
		plain, beside []figure.Run
		want          float64
	}{
		{[]figure.Run{run(100, 10)}, []figure.Run{run(200, 60)}, 0.5},
		{[]figure.Run{run(100, 10)}, []figure.Run{run(200, 5)}, 0},
		{[]figure.Run{run(100, 10), run(100, 10), run(100, 10)}, []figure.Run{run(90, 20), run(200, 110), run(200, 30)}, 0.6}, // one has not grown
		{[]figure.Run{{}}, []figure.Run{run(1, 1)}, 0},
	} {
		if got := figure.LateShare(c.plain, c.beside); got != c.want {
			t.Errorf("%d pairs: %v, want %v", len(c.plain), got, c.want)
		}
	}
}

func TestTheMedianOfPairs(t *testing.T) {
	runs := func(p99 ...float64) (all []figure.Run) {
		for _, v := range p99 {
			all = append(all, figure.Run{Latency: &figure.Latency{P99: v}})
		}
		return all
	}
	for _, c := range []struct {
		plain, beside []figure.Run
		want          float64
	}{
		{runs(10, 10, 10), runs(11, 90, 12), 1.2},
		{runs(10, 20), runs(11, 26), 1.2},
		{runs(10, 0), append(runs(15), figure.Run{}), 1.5}, // what has no latency is no pair
		{nil, runs(1), 0},
	} {
		if got := figure.MedianGrowth(c.plain, c.beside); got != c.want {
			t.Errorf("%d and %d runs: %v, want %v", len(c.plain), len(c.beside), got, c.want)
		}
	}
}
