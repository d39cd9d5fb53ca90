package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"tidewire/internal/ident"
)

// World is one run. Everything in it happens in one goroutine, in an order that the
// seed alone decides.
type World struct {
	set   Setup
	now   time.Duration // since the beginning
	queue events
	count uint64 // of events ever queued
	steps uint64 // that were taken
	depth int    // of runs inside runs: logs that are being cut
	rng   *rand.Rand

	net       network
	council   council
	processes []*process // brokers first, then coordinators that live apart, then the edge
	brokers   []*broker
	edge      *process // where gateways are: it never fails
	watchers  []*feed
	routing   *feed // of the edge
	producers []*producer
	readers   []*reader
	teams     []*team // consumer groups

	truth    []*truth // of each partition
	purged   []decidedPurge
	touched  []*broker
	recheck  bool // the coordinator's state or the truth has changed
	reached  Reached
	trace    trace
	failure  *Failure
	healing  bool
	cutOff   *broker // from its followers, for good
	ambush   string  // what befalls whoever is to join an ISR next
	newcomer *Fault  // what befalls all others when a log is begun anew
	unseen   *unseen
	topic    ident.TopicID // that there is, or was last
	lives    int           // of topics so far
	gap      time.Duration // between two of them
	deleting bool          // somebody wants the topic deleted, and the next one is not there yet
	wanted   int           // min_insync, as it was asked for last
}

// Failure is an invariant that was found broken.
type Failure struct {
	Invariant string // its name
	Detail    string
	At        time.Duration
	Step      uint64
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s broken at %s (step %d): %s", f.Invariant, f.At, f.Step, f.Detail)
}

// event is something that happens at a moment, in a life of a process if it has one.
type event struct {
	at   time.Duration
	n    uint64
	in   *process
	life int
	do   func()
}

// after queues something that happens to the world.
func (w *World) after(d time.Duration, do func()) { w.push(event{at: w.now + max(d, 0), do: do}) }

// in queues something that a process does, if it still lives then. A paused one does it
// when it goes on.
func (w *World) in(p *process, d time.Duration, do func()) {
	w.push(event{at: w.now + max(d, 0), in: p, life: p.life, do: do})
}

func (w *World) push(e event) {
	w.count++
	e.n = w.count
	w.queue.push(e)
}

// run takes steps until the time has come, nothing is left or something broke.
func (w *World) run(until time.Duration) {
	for w.queue.len() > 0 && w.failure == nil && w.queue.next() <= until {
		w.step()
	}
	if w.failure == nil && w.now < until {
		w.now = until
	}
}

// while takes steps as long as a condition holds: for what waits in the middle of a
// call, while the rest of the world goes on.
func (w *World) while(holds func() bool) {
	w.depth++
	defer func() { w.depth-- }()
	for w.failure == nil && w.queue.len() > 0 && holds() {
		w.step()
	}
}

func (w *World) step() {
	e := w.queue.pop()
	w.now = max(w.now, e.at)
	if p := e.in; p != nil {
		switch {
		case !p.up || p.life != e.life:
			return
		case p.paused:
			p.backlog = append(p.backlog, e)
			return
		}
		if p.broker != nil {
			w.touch(p.broker)
		}
	}
	w.steps++
	e.do()
	w.check()
}

// touch says that a broker may have changed.
func (w *World) touch(b *broker) {
	if !b.touched {
		b.touched = true
		w.touched = append(w.touched, b)
	}
}

// fail notes the first thing that broke.
func (w *World) fail(invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Invariant: invariant, Detail: fmt.Sprintf(format, args...), At: w.now, Step: w.steps}
	}
}

// guard turns a panic of production code into a failure.
func (w *World) guard() {
	if r := recover(); r != nil {
		w.failure = &Failure{Invariant: "no-panic", Detail: fmt.Sprintf("%v\n%s", r, debug.Stack()), At: w.now, Step: w.steps}
	}
}

// chance is true with a probability.
func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

// between draws a duration.
func (w *World) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}
