package main

import (
	"fmt"
	"strconv"
	"strings"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/load"
)

func (b *bench) printFloors(all []floorFigure) error {
	if !b.table() {
		for _, f := range all {
			if err := b.line(f); err != nil {
				return err
			}
		}
		return nil
	}
	table := [][]string{{"FLOOR", "CONNECTIONS", "BYTES", "PER SECOND", "P50 µs", "P99 µs", "P99.9 µs", "SERVER µs", "GENERATOR µs"}}
	for _, f := range all {
		row := []string{f.Floor, count(int64(f.Connections)), strconv.Itoa(f.Bytes), perSecond(f.PerSecond), "", "", "", "", ""}
		if l := f.Latency; l != nil {
			row[4], row[5], row[6] = micros(l.P50), micros(l.P99), micros(l.P999)
		}
		if f.Server != nil {
			row[7], row[8] = cost(f.Server.CPU), cost(f.Generator.CPU)
		}
		table = append(table, row)
	}
	if err := rows(b.out, filled(table)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(b.out)
	return err
}

// settings are what a load was made of, for the output: names and values.
type setting struct {
	name  string
	value any
}

// told are settings in a line of text.
func told(settings []setting) string {
	var about []string
	for _, x := range settings {
		about = append(about, fmt.Sprintf("%s %v", strings.ReplaceAll(x.name, "_", " "), x.value))
	}
	return strings.Join(about, ", ")
}

// named are settings by name, for JSON.
func named(settings []setting) map[string]any {
	about := map[string]any{}
	for _, x := range settings {
		about[x.name] = x.value
	}
	return about
}

// printRuns prints the runs of a load; in JSON each says what it is a run of.
// wanted is how many messages a second an open loop is to have, else 0.
func (b *bench) printRuns(name string, settings []setting, out load.Outcome, wanted float64, s *subject) error {
	best := figure.MarkBest(out.Runs, wanted)
	if !b.table() {
		return b.runLines(name, settings, out, wanted, s)
	}
	fmt.Fprintf(b.out, "%s: %s\n", name, told(settings))
	table := [][]string{{
		"RUN", "PER SECOND", "P50 µs", "P90 µs", "P99 µs", "P99.9 µs", "MAX µs", "LATE P99 µs",
		"SERVER µs", "CORES", "SWITCHES", "READS", "WRITES", "GENERATOR µs", "CORES", "REFUSED", "LOST", "DUPLICATES",
	}}
	for _, r := range out.Runs {
		table = append(table, runRow(r))
	}
	if err := rows(b.out, filled(table)); err != nil {
		return err
	}
	if best >= 0 {
		fmt.Fprint(b.out, "* the best run. ")
	}
	fmt.Fprintln(b.out, "SERVER µs is processor time per message; SWITCHES, READS and WRITES are counted per message too.")
	for _, text := range conclusions(out, wanted, s) {
		fmt.Fprintln(b.out, visible(text))
	}
	_, err := fmt.Fprintln(b.out)
	return err
}

// report ends a measurement: it prints its runs, and says whether the load came through
// whole.
func (b *bench) report(name string, settings []setting, out load.Outcome, wanted float64, s *subject) error {
	s.bar.finish()
	if err := b.printRuns(name, settings, out, wanted, s); err != nil {
		return err
	}
	return whole(out)
}

func runRow(r figure.Run) []string {
	mark := ""
	if r.Best {
		mark = "*"
	}
	row := make([]string, 18)
	row[0], row[1] = strconv.Itoa(r.Run)+mark, perSecond(r.PerSecond)
	if l := r.Latency; l != nil {
		row[2], row[3], row[4], row[5], row[6] = micros(l.P50), micros(l.P90), micros(l.P99), micros(l.P999), micros(l.Max)
	}
	if r.Late != nil {
		row[7] = micros(r.Late.P99)
	}
	if c := r.Server; c != nil {
		row[8], row[9], row[10], row[11], row[12] = cost(c.CPU), cost(c.Cores), cost(c.Switches), cost(c.Reads), cost(c.Writes)
	}
	row[13], row[14] = cost(r.Generator.CPU), cost(r.Generator.Cores)
	row[15], row[16], row[17] = count(r.Refused), count(r.Lost), count(r.Dupes)
	return row
}

// filled leaves out the columns in which no row but the head has anything.
func filled(table [][]string) [][]string {
	out := make([][]string, len(table))
	for col := range table[0] {
		empty := true
		for _, row := range table[1:] {
			empty = empty && row[col] == ""
		}
		for i, row := range table {
			if !empty {
				out[i] = append(out[i], row[col])
			}
		}
	}
	return out
}

func (b *bench) runLines(name string, settings []setting, out load.Outcome, wanted float64, s *subject) error {
	about := named(settings)
	for _, r := range out.Runs {
		line := struct {
			Kind  string         `json:"kind"` // run
			Bench string         `json:"bench"`
			Load  map[string]any `json:"load"`
			figure.Run
		}{"run", name, about, r}
		if err := b.line(line); err != nil {
			return err
		}
	}
	refusal := ""
	if out.Refusal != nil {
		refusal = out.Refusal.Error()
	}
	return b.line(struct {
		Kind        string         `json:"kind"` // summary
		Bench       string         `json:"bench"`
		Load        map[string]any `json:"load"`
		Sent        int64          `json:"sent"`
		Outstanding int64          `json:"outstanding"`
		Behind      int64          `json:"behind"`
		Overdue     int64          `json:"overdue"`
		Short       int            `json:"short_runs"` // of an open loop: had less than their rate
		Refusal     string         `json:"refusal,omitempty"`
		Remarks     []string       `json:"remarks"`
	}{"summary", name, about, out.Sent, out.Outstanding, out.Behind, out.Overdue, figure.Short(out.Runs, wanted), refusal, append([]string{}, s.remarks...)})
}

// conclusions are what a reader has to know beside the figures.
func conclusions(out load.Outcome, wanted float64, s *subject) []string {
	var lost, duplicates, refused int64
	for _, r := range out.Runs {
		lost, duplicates, refused = lost+r.Lost, duplicates+r.Dupes, refused+r.Refused
	}
	all := []string{fmt.Sprintf("%d sent, warm-up included; %d outstanding at the end; in the runs %d lost, %d duplicates, %d refused",
		out.Sent, out.Outstanding, lost, duplicates, refused)}
	if out.Behind > 0 {
		all = append(all, fmt.Sprintf("the rate was not kept: %d messages were due and not sent when the load ended", out.Behind))
	}
	if out.Overdue > 0 {
		all = append(all, fmt.Sprintf("the rate was not kept: %d messages were not answered a second after they were due when the load ended", out.Overdue))
	}
	if n := figure.Short(out.Runs, wanted); n > 0 && out.Behind+out.Overdue > 0 {
		all = append(all, fmt.Sprintf("%d of %d runs had less than %.0f messages a second", n, len(out.Runs), wanted))
	}
	if out.Refusal != nil {
		all = append(all, "the first refusal: "+out.Refusal.Error())
	}
	return append(all, s.remarks...)
}

// whole says whether a load came through without a loss.
func whole(out load.Outcome) error {
	kept, bad := int64(0), out.Outstanding
	for _, r := range out.Runs {
		kept += r.Messages
		bad += r.Lost + r.Dupes + r.Refused
	}
	if kept == 0 && out.Refusal != nil {
		return &exitError{exitRefused, fmt.Errorf("nothing was kept: %w", out.Refusal)}
	}
	if bad > 0 {
		return &exitError{exitFailed, errShort}
	}
	return nil
}

func perSecond(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func micros(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func cost(v float64) string {
	if v < 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

// count leaves out what there is none of.
func count(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// counted is a number with its noun, "1 pair" or "2 pairs".
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
