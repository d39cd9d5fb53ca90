package report_test

import (
	"errors"
	"strings"
	"testing"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/bench/internal/report"
)

func page() report.Page {
	c := plan.Case{Name: "publish-1", Title: "one", Kind: plan.Publish, Systems: []plan.System{plan.Tidewire, plan.NATSAlways, plan.RedisAlways}}
	r := figures.Results{}
	for _, v := range []float64{1000, 1200, 1100} {
		r.Add("publish-1", plan.Tidewire, figures.Sample{Values: map[plan.Metric]float64{plan.Rate: v, plan.P50: 12.345}})
		r.Add("publish-1", plan.NATSAlways, figures.Sample{Values: map[plan.Metric]float64{plan.Rate: 100}})
	}
	r.Add("publish-1", plan.RedisAlways, figures.Failed(errors.New("it | broke\nin two")))
	of := func(s plan.System) plan.Of { return plan.Of{Case: "publish-1", System: s, Metric: plan.Rate} }
	return report.Page{
		Settings: []report.Setting{{"machine", "two processors"}}, Missing: map[plan.System]string{plan.RedisAlways: "it is not installed"}, Repetitions: 3,
		Scenarios: []plan.Scenario{{Name: "publish", Title: "Publishing", Note: "A note.", Cases: []plan.Case{c}}}, Results: r,
		Bars: []plan.Bar{
			{Title: "quick", Ours: of(plan.Tidewire), Theirs: of(plan.NATSAlways), AtLeast: true, Limit: 6},
			{Title: "quicker", Ours: of(plan.Tidewire), Theirs: of(plan.NATSAlways), AtLeast: true, Limit: 60},
			{Title: "never seen", Ours: of(plan.Centrifugo), Limit: 1},
		},
	}
}

func TestThePageSaysWhatWasMeasured(t *testing.T) {
	text := report.Markdown(page())
	for _, want := range []string{
		"- machine: two processors\n",
		"- **redis-always is missing**: it is not installed\n",
		"| quick | messages a second | ≥ 6 × nats-always | 11 (10–12) | holds |",
		"| quicker | messages a second | ≥ 60 × nats-always | 11 (10–12) | **missed** |",
		"| never seen | messages a second | ≤ 1 | – | not measured |",
		"| one | tidewire | 1,100 (1,000–1,200) | 12.3 | – |",
		"| 11 × (10 to 12), messages a second | `bin/peers -cases publish-1 -systems nats-always` |",
		"**failed: it / broke in two**",
		"- nats-always: JetStream, file store, sync_interval always",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestEveryTableHasAsManyCellsInEachRow(t *testing.T) {
	p := page()
	p.Scenarios = append(p.Scenarios, plan.All()...)
	cells := 0
	for line := range strings.Lines(report.Markdown(p)) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|")
		if cells > 0 && n != cells {
			t.Errorf("a row of %d cells in a table of %d: %s", n, cells, line)
		}
		cells = n
	}
}
