package figures_test

import (
	"errors"
	"testing"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
)

func rate(v float64) figures.Sample {
	return figures.Sample{Values: map[plan.Metric]float64{plan.Rate: v}}
}

func results(ours, theirs []float64) figures.Results {
	r := figures.Results{}
	for _, v := range ours {
		r.Add("c", plan.Tidewire, rate(v))
	}
	for _, v := range theirs {
		r.Add("c", plan.NATSCore, rate(v))
	}
	return r
}

func TestMediansWithTheLeastAndTheMost(t *testing.T) {
	for _, x := range []struct {
		all  []float64
		want figures.Spread
	}{
		{nil, figures.Spread{}},
		{[]float64{7}, figures.Spread{7, 7, 7, 1}},
		{[]float64{9, 1, 5}, figures.Spread{5, 1, 9, 3}},
		{[]float64{4, 1, 2, 3}, figures.Spread{2.5, 1, 4, 4}},
	} {
		if got := figures.Of(x.all); got != x.want {
			t.Errorf("%v: got %+v, want %+v", x.all, got, x.want)
		}
	}
}

func TestRatiosAreOfPairsAndNotOfMedians(t *testing.T) {
	// A machine that slows down between repetitions slows both: each pair says 2.
	r := results([]float64{200, 20, 2}, []float64{100, 10, 1})
	of := func(s plan.System) plan.Of { return plan.Of{Case: "c", System: s, Metric: plan.Rate} }
	if got := r.Ratio(of(plan.Tidewire), of(plan.NATSCore)); got != (figures.Spread{2, 2, 2, 3}) {
		t.Errorf("got %+v", got)
	}
	// A pair that is not whole does not count, and does not shift the others.
	r = figures.Results{}
	r.Add("c", plan.Tidewire, rate(10))
	r.Add("c", plan.Tidewire, figures.Failed(errors.New("it broke")))
	r.Add("c", plan.Tidewire, rate(30))
	for _, v := range []float64{10, 1, 10} {
		r.Add("c", plan.NATSCore, rate(v))
	}
	if got := r.Ratio(of(plan.Tidewire), of(plan.NATSCore)); got != (figures.Spread{2, 1, 3, 2}) {
		t.Errorf("got %+v", got)
	}
	if !r.Failed() || len(r.Failures("c", plan.Tidewire)) != 1 {
		t.Error("the failure is not told")
	}
}

func TestBars(t *testing.T) {
	ours, theirs := plan.Of{Case: "c", System: plan.Tidewire, Metric: plan.Rate}, plan.Of{Case: "c", System: plan.NATSCore, Metric: plan.Rate}
	r := results([]float64{30, 20, 40}, []float64{10, 10, 10})
	for _, x := range []struct {
		bar  plan.Bar
		held bool
	}{
		{plan.Bar{Ours: ours, Theirs: theirs, AtLeast: true, Limit: 3}, true},
		{plan.Bar{Ours: ours, Theirs: theirs, AtLeast: true, Limit: 3.1}, false},
		{plan.Bar{Ours: ours, Theirs: theirs, Limit: 3}, true},
		{plan.Bar{Ours: ours, Theirs: theirs, Limit: 2.9}, false},
		{plan.Bar{Ours: ours, Limit: 30}, true},
		{plan.Bar{Ours: ours, Limit: 0}, false},
		{plan.Bar{Ours: plan.Of{Case: "not there"}, Limit: 30}, false},
	} {
		if v := r.Judge(x.bar); v.Held != x.held {
			t.Errorf("%+v: held %v by %+v", x.bar, v.Held, v.Spread)
		}
	}
}

func TestWhatMayNotBeIsJudgedByTheWorst(t *testing.T) {
	bar := plan.Bar{Ours: plan.Of{Case: "c", System: plan.Tidewire, Metric: plan.Rate}, Limit: 0}
	if r := results([]float64{0, 0, 1}, nil); r.Judge(bar).Held {
		t.Error("one loss in three repetitions is taken for none")
	}
	if r := results([]float64{0, 0, 0}, nil); !r.Judge(bar).Held {
		t.Error("no loss is taken for one")
	}
}

func TestReplacingLeavesWhatWasNotMeasuredAgain(t *testing.T) {
	r := results([]float64{1}, []float64{2})
	fresh := figures.Results{}
	fresh.Add("c", plan.Tidewire, rate(5))
	fresh.Add("d", plan.Tidewire, rate(6))
	r.Replace(fresh)
	for _, x := range []struct {
		name string
		s    plan.System
		want float64
	}{{"c", plan.Tidewire, 5}, {"c", plan.NATSCore, 2}, {"d", plan.Tidewire, 6}} {
		if got := r.Spread(plan.Of{Case: x.name, System: x.s, Metric: plan.Rate}); got.Median != x.want || got.N != 1 {
			t.Errorf("%s on %s: %+v", x.name, x.s, got)
		}
	}
}

func TestThreeDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 123456: 123000, 0.012345: 0.0123, -98765: -98800, 5: 5} {
		if got := figures.Round(v); got != want {
			t.Errorf("%v: got %v, want %v", v, got, want)
		}
	}
}
