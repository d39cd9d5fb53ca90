package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"tidewire/cmd/tidewire/internal/producer"
)

// maxNamed bounds how many refused lines are named one by one.
const maxNamed = 10

// retryNotice is the least time between two notices of a retry.
const retryNotice = time.Second

// report counts what became of the lines. It is used concurrently: by the
// reader for lines that cannot be sent, by the producer for the rest.
type report struct {
	mu     sync.Mutex
	began  time.Time
	topic  string
	err    io.Writer
	bar    progress
	totals totals
	parts  map[uint32]*partitionTotals
	named  int
	// said is when a retry was spoken of last: an outage concerns every partition.
	said time.Time
}

type totals struct {
	Read       int `json:"read"` // lines, but for empty ones
	Sent       int `json:"sent"` // of those, that went to the node and were not given up
	Kept       int `json:"kept"`
	Taken      int `json:"taken"` // taken in without a word on whether they are kept
	Duplicates int `json:"duplicates"`
	Refused    int `json:"refused"`
	Unknown    int `json:"unknown"`
	Unsent     int `json:"unsent"`
	Blank      int `json:"blank"`
}

type partitionTotals struct {
	Partition  uint32 `json:"partition"`
	Kept       int    `json:"kept"`
	Taken      int    `json:"taken"`
	Duplicates int    `json:"duplicates"`
	First      *int64 `json:"first"` // offsets; null where the server told none
	Last       *int64 `json:"last"`
}

func newReport(topic string, err io.Writer, bar progress) *report {
	return &report{topic: topic, err: err, bar: bar, began: time.Now(), parts: map[uint32]*partitionTotals{}}
}

func (r *report) blank() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Blank++
}

func (r *report) outcome(rec producer.Record, o producer.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Read++
	if o.Fate != producer.Unsent {
		r.totals.Sent++
	}
	switch o.Fate {
	case producer.Kept:
		r.totals.Kept++
		r.place(o).Kept++
	case producer.Taken:
		r.totals.Taken++
		r.place(o).Taken++
	case producer.Duplicate:
		r.totals.Duplicates++
		r.place(o).Duplicates++
	case producer.Refused:
		r.totals.Refused++
		r.nameLocked(rec, "refused", o.Err)
	case producer.Unknown:
		r.totals.Unknown++
		r.nameLocked(rec, "may have been kept", o.Err)
	case producer.Unsent:
		r.totals.Unsent++
		r.nameLocked(rec, "not sent", o.Err)
	}
}

// unfit counts a line of which no record could be made: it goes nowhere.
func (r *report) unfit(rec producer.Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Read++
	r.totals.Refused++
	r.nameLocked(rec, "refused", err)
}

func (r *report) place(o producer.Outcome) *partitionTotals {
	p := r.parts[o.Partition]
	if p == nil {
		p = &partitionTotals{Partition: o.Partition}
		r.parts[o.Partition] = p
	}
	if at := o.Offset; at >= 0 {
		if p.First == nil || at < *p.First {
			p.First = &at
		}
		if p.Last == nil || at > *p.Last {
			p.Last = &at
		}
	}
	return p
}

func (r *report) nameLocked(rec producer.Record, what string, err error) {
	r.named++
	switch {
	case r.named <= maxNamed:
		where := "line " + strconv.Itoa(rec.Line)
		if rec.Source != "" {
			where = rec.Source + ":" + strconv.Itoa(rec.Line)
		}
		r.bar.say(fmt.Sprintf("%s: %s: %s", where, what, visible(err.Error())))
	case r.named == maxNamed+1:
		r.bar.say("more lines like these are counted, not named")
	}
}

func (r *report) retry(partition uint32, cause error, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.said) < retryNotice {
		return
	}
	r.said = time.Now()
	r.bar.say(fmt.Sprintf("partition %d: trying again in %s: %s", partition, wait.Round(time.Millisecond), visible(cause.Error())))
}

// failed counts the lines that are not certainly kept.
func (r *report) failed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totals.Refused + r.totals.Unknown + r.totals.Unsent
}

// print writes the summary.
func (r *report) print(out *remote) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.began)
	parts := make([]*partitionTotals, 0, len(r.parts))
	for _, id := range slices.Sorted(maps.Keys(r.parts)) {
		parts = append(parts, r.parts[id])
	}
	if !out.table() {
		raw, err := json.Marshal(struct {
			Topic string `json:"topic"`
			totals
			Seconds    float64            `json:"seconds"`
			Partitions []*partitionTotals `json:"partitions"`
		}{r.topic, r.totals, took.Seconds(), parts})
		if err != nil {
			return fmt.Errorf("encode the summary: %w", err)
		}
		return out.line(json.RawMessage(raw))
	}
	t := r.totals
	fmt.Fprintf(out.out, "%d read, %d sent, %d kept, %d duplicates, %d refused", t.Read, t.Sent, t.Kept, t.Duplicates, t.Refused)
	if t.Taken > 0 {
		fmt.Fprintf(out.out, ", %d taken in", t.Taken)
	}
	if t.Unknown+t.Unsent > 0 {
		fmt.Fprintf(out.out, ", %d unknown, %d not sent", t.Unknown, t.Unsent)
	}
	if t.Blank > 0 {
		fmt.Fprintf(out.out, ", %d empty lines left out", t.Blank)
	}
	fmt.Fprintf(out.out, " in %s (%.0f/s)\n", took.Round(time.Millisecond), float64(t.Read)/max(took.Seconds(), 1e-3))
	done := "KEPT"
	if t.Taken > 0 { // with acks none nothing is known to be kept
		done = "TAKEN IN"
	}
	table := [][]string{{"PARTITION", done, "DUPLICATES", "FIRST", "LAST"}}
	for _, p := range parts {
		table = append(table, []string{
			strconv.FormatUint(uint64(p.Partition), 10), strconv.Itoa(p.Kept + p.Taken), strconv.Itoa(p.Duplicates), offset(p.First), offset(p.Last),
		})
	}
	return rows(out.out, table)
}

func offset(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// progress shows on the standard error how far the reading is, where that is a
// terminal; elsewhere it only says things.
type progress struct {
	err io.Writer
	bar *progressbar.ProgressBar // nil: none
}

func newProgress(p process, off bool, total int64) progress {
	if off || !terminal(p.err) {
		return progress{err: p.err}
	}
	return progress{err: p.err, bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.err), progressbar.OptionShowBytes(true), progressbar.OptionSetDescription("publishing"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30),
	)}
}

func (p progress) read(bytes int64) {
	if p.bar != nil {
		_ = p.bar.Set64(bytes) // a bar that cannot be drawn is no reason to stop
	}
}

// say prints a line without leaving the bar in the middle of it.
func (p progress) say(text string) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintln(p.err, text)
}

func (p progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
