// Package report writes the results of the comparison as a page of Markdown. It is pure.
package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
)

// Setting is one line about the machine, a version or a setting.
type Setting struct{ Name, Value string }

// Page is what is written.
type Page struct {
	Settings    []Setting
	Missing     map[plan.System]string // systems that could not run here, and why
	Repetitions int
	Scenarios   []plan.Scenario
	Bars        []plan.Bar
	Results     figures.Results
}

// Markdown writes the page.
func Markdown(p Page) string {
	var b strings.Builder
	b.WriteString(`# Tidewire beside other systems

Written by ` + "`make bench-peers`" + `. All of a scenario's systems run side by side, as processes of their own on this machine, and take turns: forth in one repetition, back in the next.
One load generator drives all of them, and counts alike: the processor time of a system is the user and system time of its processes (` + "`/proc/PID/stat`" + `).
`)
	fmt.Fprintf(&b, "A cell is the median of %d repetitions (least to most). A ratio is Tidewire's figure divided by the row's, pair by pair within a repetition, then the median of those.\n", p.Repetitions)
	b.WriteString("Latencies in µs; CPU is the server's, in µs a message. The generator shares the machine with what it measures: compare rows, not machines.\n\n")
	for _, s := range p.Settings {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Value)
	}
	for _, x := range systems(p.Scenarios) {
		if why, ok := p.Missing[x]; ok {
			fmt.Fprintf(&b, "- **%s is missing**: %s\n", x, why)
		}
	}
	bars(&b, p)
	for _, s := range p.Scenarios {
		scenario(&b, p, s)
	}
	return b.String()
}

func systems(all []plan.Scenario) (found []plan.System) {
	for _, s := range all {
		for _, x := range s.Systems() {
			if !slices.Contains(found, x) {
				found = append(found, x)
			}
		}
	}
	return found
}

func bars(b *strings.Builder, p Page) {
	b.WriteString("\n## What has to hold\n\n| | figure | bar | measured | |\n|---|---|---|---|---|\n")
	for _, bar := range p.Bars {
		v := p.Results.Judge(bar)
		sign := "≤"
		if bar.AtLeast {
			sign = "≥"
		}
		limit := sign + " " + number(bar.Limit)
		if bar.Theirs.Case != "" {
			limit += " × " + theirs(bar)
		}
		verdict := "holds"
		switch {
		case v.Spread.N == 0:
			verdict = "not measured"
		case !v.Held:
			verdict = "**missed**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", bar.Title, bar.Ours.Metric, limit, spread(v.Spread), verdict)
	}
}

func theirs(bar plan.Bar) string {
	if bar.Theirs.System != bar.Ours.System {
		return string(bar.Theirs.System)
	}
	return bar.Theirs.Case
}

// columns are those of a kind of case.
func columns(k plan.Kind) []plan.Metric {
	switch k {
	case plan.Idle:
		return []plan.Metric{plan.RSS}
	case plan.Storm:
		return []plan.Metric{plan.AllBack, plan.Signal, plan.NotTold, plan.Crowding, plan.Growth, plan.Lost}
	case plan.Groups, plan.CatchUp:
		return []plan.Metric{plan.Rate, plan.CPU}
	}
	return []plan.Metric{plan.Rate, plan.P50, plan.P99, plan.CPU, plan.Lost}
}

// against is the metric that Tidewire is compared by.
func against(c plan.Case) plan.Metric {
	switch {
	case c.Kind == plan.Idle:
		return plan.RSS
	case c.Kind == plan.Fanout && c.Rate > 0:
		return plan.P50
	case c.Kind == plan.Fanout:
		return plan.CPU
	}
	return plan.Rate
}

func scenario(b *strings.Builder, p Page, s plan.Scenario) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", s.Title, s.Note)
	shown := columns(s.Cases[0].Kind)
	b.WriteString("\n| | system | ")
	for _, m := range shown {
		b.WriteString(string(m) + " | ")
	}
	b.WriteString("RSS, MB | Tidewire against it | the row alone |\n|---|---|" + strings.Repeat("---|", len(shown)+3) + "\n")
	for _, c := range s.Cases {
		for _, x := range c.Systems {
			row(b, p, c, x, shown)
		}
	}
	b.WriteString("\n")
	for _, x := range s.Systems() {
		fmt.Fprintf(b, "- %s: %s.\n", x, x.Guarantee())
	}
}

func row(b *strings.Builder, p Page, c plan.Case, x plan.System, shown []plan.Metric) {
	fmt.Fprintf(b, "| %s | %s | ", c.Title, x)
	if fails := p.Results.Failures(c.Name, x); len(fails) > 0 {
		text := strings.ReplaceAll(strings.ReplaceAll(strings.Join(fails, "; "), "\n", " "), "|", "/")
		if len(text) > 300 {
			text = text[:300] + "…"
		}
		fmt.Fprintf(b, "**failed: %s** ", text)
	}
	for _, m := range shown {
		b.WriteString(spread(p.Results.Spread(plan.Of{Case: c.Name, System: x, Metric: m})) + " | ")
	}
	memory := p.Results.Spread(plan.Of{Case: c.Name, System: x, Metric: Memory})
	ratio, m := "", against(c)
	if ours := c.Systems[0]; x != ours {
		if r := p.Results.Ratio(plan.Of{Case: c.Name, System: ours, Metric: m}, plan.Of{Case: c.Name, System: x, Metric: m}); r.N > 0 {
			ratio = fmt.Sprintf("%s × (%s to %s), %s", number(r.Median), number(r.Min), number(r.Max), m)
		}
	}
	fmt.Fprintf(b, "%s | %s | `bin/peers -cases %s -systems %s` |\n", spread(memory), ratio, c.Name, x)
}

// Memory is the RSS of all processes of a system after a run, in MB. No bar is about it.
const Memory plan.Metric = "RSS"

func spread(s figures.Spread) string {
	switch {
	case s.N == 0:
		return "–"
	case s.N == 1 || s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three significant digits, and commas between thousands.
func number(v float64) string {
	v = figures.Round(v)
	if v > -1000 && v < 1000 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
