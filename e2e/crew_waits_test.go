package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/harness"
)

// waits are the writes of one producer: when it began to want each
// acknowledgement, and when it had it. A record that was lost with a connection
// counts into the wait of the next one.
type waits struct {
	mu  sync.Mutex
	all []wait
}

type wait struct{ begin, end time.Time }

func (w wait) took() time.Duration { return w.end.Sub(w.begin) }

func (w *waits) add(begin, end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, wait{begin, end})
}

func (w *waits) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// during are the waits of which a part lies between two times.
func (w *waits) during(from, to time.Time) (all []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		if x.end.After(from) && x.begin.Before(to) {
			all = append(all, x.took())
		}
	}
	return all
}

// span is what befalls the cluster for a while.
type span struct {
	crew *crew
	what string
	led  map[int]string // who led each partition when it began
	from time.Time
	// starved is how long the machine kept processes waiting since.
	starved func() time.Duration
}

// begin notes who leads just before something happens.
func (w *crew) begin(format string, args ...any) span {
	w.t.Helper()
	return span{w, fmt.Sprintf(format, args...), harness.Leaders(w.info()), time.Now(), w.cluster.Starved()}
}

// class is which partitions belong together, by who led them.
type class struct {
	name  string
	is    func(leader string) bool
	bound time.Duration // of the longest wait; 0: none
}

// slack widens the bounds where the machine does other things: the figures of the
// acceptance are measured by make soak on a machine that does nothing else.
func slack(d time.Duration) time.Duration {
	if harness.Soak() {
		return d
	}
	return 2*d + 500*time.Millisecond
}

// end waits until every producer goes on, prints how long producers waited by
// class of partition, and holds the longest waits to their bounds.
func (s span) end(classes ...class) map[string]time.Duration {
	s.crew.t.Helper()
	s.crew.awaitEach(3)
	to, starved := time.Now(), s.starved()
	longest := map[string]time.Duration{}
	for _, c := range classes {
		var all []time.Duration
		each := map[string]time.Duration{}
		for _, p := range s.crew.producers {
			if !c.is(s.led[p.partition]) {
				continue
			}
			waited := p.waits.during(s.from, to)
			all = append(all, waited...)
			if len(waited) > 0 {
				each[p.id] = slices.Max(waited)
			}
		}
		if len(all) == 0 {
			s.crew.t.Logf("%s: %s: no partition", s.what, c.name)
			continue
		}
		longest[c.name] = slices.Max(all)
		s.crew.waited.add(c, all)
		s.crew.t.Logf("%s: %s: %s; longest of each producer: %s", s.what, c.name, distribution(all), longestOf(each))
		if most := slack(c.bound) + starved; c.bound > 0 && longest[c.name] > most {
			s.crew.late.add("%s: %s: a producer waited %s, %s at most is allowed (%s on a machine that does nothing else, this one kept a process waiting %s; load %s)",
				s.what, c.name, longest[c.name].Round(time.Millisecond), most.Round(time.Millisecond), c.bound, starved.Round(time.Millisecond), harness.Load())
		}
	}
	return longest
}

// waited is how long producers waited in all that befell a cluster, by class.
type waited struct {
	names []string
	all   map[string][]time.Duration
}

func (w *waited) add(c class, all []time.Duration) {
	name := c.name
	if c.bound > 0 {
		name += fmt.Sprintf(" (%s at most)", c.bound)
	}
	if w.all == nil {
		w.all = map[string][]time.Duration{}
	}
	if w.all[name] == nil {
		w.names = append(w.names, name)
	}
	w.all[name] = append(w.all[name], all...)
}

// judgeWaits prints how long producers waited in all, and fails where one waited too
// long, or the truth came too late. That does not end a test before: what comes after is
// worth knowing too.
func (w *crew) judgeWaits() {
	w.t.Helper()
	for _, name := range w.waited.names {
		w.t.Logf("in all: %s: %s", name, distribution(w.waited.all[name]))
	}
	if w.late.n > 0 {
		w.t.Errorf("%d times something took too long:\n%s", w.late.n, strings.Join(w.late.first, "\n"))
	}
}

// leadBy are the partitions that nodes led, and the rest.
func leadBy(names ...string) (led, others func(string) bool) {
	return func(l string) bool { return slices.Contains(names, l) }, func(l string) bool { return !slices.Contains(names, l) }
}

// distribution writes durations as a person reads them.
func distribution(all []time.Duration) string {
	all = slices.Sorted(slices.Values(all))
	at := func(q float64) time.Duration {
		return all[min(len(all)-1, int(q*float64(len(all))))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d writes, p50 %s, p90 %s, p99 %s, longest %s", len(all), at(0.5), at(0.9), at(0.99), at(1))
}

func longestOf(each map[string]time.Duration) string {
	var parts []string
	for _, id := range slices.SortedFunc(maps.Keys(each), func(a, b string) int { return int(each[b] - each[a]) }) {
		parts = append(parts, fmt.Sprintf("%s %s", id, each[id].Round(time.Millisecond)))
	}
	return strings.Join(parts, ", ")
}

func TestWaitsAreFoundByWhenTheyWere(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	var w waits
	w.add(at(0), at(10))
	w.add(at(20), at(300))
	w.add(at(310), at(320))
	for _, c := range []struct{ from, to, want, longest int }{
		{100, 200, 1, 280}, {0, 1000, 3, 280}, {0, 15, 1, 10}, {305, 400, 1, 10}, {11, 19, 0, 0},
	} {
		got := w.during(at(c.from), at(c.to))
		if len(got) != c.want || c.want > 0 && slices.Max(got) != time.Duration(c.longest)*time.Millisecond {
			t.Errorf("from %d to %d: %v", c.from, c.to, got)
		}
	}
	led, others := leadBy("n1")
	if !led("n1") || led("n2") || others("n1") || !others("") {
		t.Error("classes overlap")
	}
	if got := distribution([]time.Duration{3 * time.Millisecond, time.Millisecond}); got != "2 writes, p50 3ms, p90 3ms, p99 3ms, longest 3ms" {
		t.Error(got)
	}
}
