package check

import (
	"errors"
	"fmt"
	"strings"
)

// shown is how many violations of a promise a report keeps word for word; the
// rest is counted.
const shown = 10

// Counts says what a history held, so that a clean report of an empty history
// is seen for what it is.
type Counts struct {
	Ops, Acknowledged, Refused, Unknown, Duplicates int
	Values, Logs, Records                           int
	// ExtraCopies stand because a record without idempotence was sent again.
	ExtraCopies                            int
	Readers, Reads, Rereads, Resumes, Gaps int
}

// Report is the verdict on a history.
type Report struct {
	Counts Counts
	broken [numPromises]int
	words  [numPromises][]string
}

func (r *Report) violate(p Promise, format string, args ...any) {
	r.broken[p]++
	if len(r.words[p]) < shown {
		r.words[p] = append(r.words[p], fmt.Sprintf(format, args...))
	}
}

// OK reports whether every promise was kept.
func (r *Report) OK() bool { return r.Total() == 0 }

// Broken is the number of violations of a promise.
func (r *Report) Broken(p Promise) int { return r.broken[p] }

// Total is the number of violations of all promises.
func (r *Report) Total() int {
	n := 0
	for _, b := range r.broken {
		n += b
	}
	return n
}

// Err is nil if every promise was kept, else the whole report as an error.
func (r *Report) Err() error {
	if r.OK() {
		return nil
	}
	return errors.New(r.String())
}

// String is the report for people: the counts, then each promise, then the
// first violations of those that were broken.
func (r *Report) String() string {
	var b strings.Builder
	c := r.Counts
	fmt.Fprintf(&b, "publishes %d: acknowledged %d (%d as repeats), refused %d, unknown %d; records sent %d\n",
		c.Ops, c.Acknowledged, c.Duplicates, c.Refused, c.Unknown, c.Values)
	fmt.Fprintf(&b, "logs %d: records %d, extra copies without idempotence %d\n", c.Logs, c.Records, c.ExtraCopies)
	fmt.Fprintf(&b, "readers %d: reads %d (%d again), resumes %d, gaps %d\n", c.Readers, c.Reads, c.Rereads, c.Resumes, c.Gaps)
	for _, p := range Promises() {
		if r.broken[p] == 0 {
			fmt.Fprintf(&b, "  ok      %s\n", p)
			continue
		}
		fmt.Fprintf(&b, "  BROKEN  %s: %d (%s)\n", p, r.broken[p], promises[p].broken)
		for _, w := range r.words[p] {
			fmt.Fprintf(&b, "          %s\n", w)
		}
		if more := r.broken[p] - len(r.words[p]); more > 0 {
			fmt.Fprintf(&b, "          and %d more\n", more)
		}
	}
	return b.String()
}
