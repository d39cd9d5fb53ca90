package sim

import (
	"fmt"
	"strings"
	"time"
)

// trace keeps the last lines of what happened. They are put into words only when
// somebody wants to read them.
type trace struct {
	lines []line
	next  int
	sum   uint64 // of all lines ever: two runs of one seed have the same
}

type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// traceLines is how many are kept.
const traceLines = 400

// note adds a line. Its arguments must not change afterwards.
func (w *World) note(who, format string, args ...any) {
	t := &w.trace
	l := line{w.now, who, format, args}
	if len(t.lines) < traceLines {
		t.lines = append(t.lines, l)
	} else {
		t.lines[t.next] = l
		t.next = (t.next + 1) % traceLines
	}
	t.sum = (t.sum*1099511628211 ^ uint64(l.at)) + uint64(len(who)+len(format))
}

// String is the kept lines, oldest first.
func (t *trace) String() string {
	var b strings.Builder
	for i := range t.lines {
		l := &t.lines[(t.next+i)%len(t.lines)]
		fmt.Fprintf(&b, "%12s  %-6s %s\n", l.at, l.who, fmt.Sprintf(l.format, l.args...))
	}
	return b.String()
}
