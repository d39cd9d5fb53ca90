package load

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/figure"
)

// Transports.
const (
	WebSocket = "ws"
	HTTP      = "http"
	Lines     = "ndjson"
	SSE       = "sse"
	SSEH2     = "sse-h2c"
)

// Publish is a load of publishers.
type Publish struct {
	Target     Target
	Records    Records
	Transport  string // WebSocket, HTTP or Lines
	Publishers int
	Window     int     // in flight of each; over HTTP it is 1
	Rate       float64 // publishes a second of all together; 0: a closed loop
	Plan       Plan

	// Each changes the records of one publisher, as to another topic; nil: all are alike.
	Each func(Records) Records
	// Speak is what a publisher says to another server than Tidewire, or where it is no
	// publish; nil: it is one.
	Speak func() Dialect
}

// Outcome is the runs of a load and how it ended.
type Outcome struct {
	Runs   []figure.Run
	Beside []figure.Run // the same with subscribers that do not keep up
	// Before and After are the server before the first pair of runs and after the
	// last, where its process is known and there are pairs.
	Before, After *Snapshot
	// Sent and the rest are of the whole load, its warm-up included.
	Sent        int64
	Outstanding int64 // not answered, or not delivered, when all was waited for
	Behind      int64 // of an open loop: due and not sent when it ended
	Overdue     int64 // of an open loop: sent, and a second after they were due not answered when it ended
	Refusal     error // of the first record that was refused
}

// drainTimeout is how long a load waits in the end for what is in flight.
const drainTimeout = 15 * time.Second

// Run puts the load on and measures it.
func (w Publish) Run(ctx context.Context, p Progress) (Outcome, error) {
	crew, err := newCrew(ctx, w.Publishers, 0)
	if err != nil {
		return Outcome{}, err
	}
	defer crew.stop()
	k, due := newClock(), &atomic.Int64{}
	recs := newRecorders(crew)
	lanes, err := w.lanes(crew, k, recs, due, p)
	if err != nil {
		return Outcome{}, err
	}
	if w.Rate > 0 {
		k.follow(w.Rate)
		crew.run(func() error { return pace(crew.ctx, k, due, lanes) })
	} else {
		due.Store(math.MaxInt64)
		for _, l := range lanes {
			if err := l.pump(k.now()); err != nil {
				return Outcome{}, err
			}
		}
	}
	m := &meter{crew: crew, recs: recs, pids: w.Target.PIDs(), stalled: func() string {
		n, _, _ := flight(lanes)
		return fmt.Sprintf("%d publishes are not answered", n)
	}}
	runs, err := m.runs(w.Plan, p)
	out := Outcome{Runs: runs}
	if err != nil {
		return out, err
	}
	if w.Rate > 0 {
		now := k.now()
		out.Behind, out.Overdue = max(0, k.plan.Load().due(now)-reached(lanes)), overdue(lanes, now)
	}
	return out, w.drain(crew, due, lanes, &out)
}

// lanes connects the publishers.
func (w Publish) lanes(crew *crew, k *clock, recs []*recorder, due *atomic.Int64, p Progress) ([]*lane, error) {
	lanes := make([]*lane, w.Publishers)
	err := crew.each(w.Publishers, "connecting publishers", p, func(i int) error {
		lanes[i] = newLane(crew, k, recs[i%len(recs)], w.dialect(), due, w.Window, int64(i), int64(w.Publishers))
		return lanes[i].open(w.Target.turn(i), crew.loops[i%len(crew.loops)])
	})
	return lanes, err
}

// drain sends no more and waits for the answers that are due.
func (w Publish) drain(crew *crew, due *atomic.Int64, lanes []*lane, out *Outcome) error {
	for _, l := range lanes { // each stands still where it is
		l.mu.Lock()
		l.due = &atomic.Int64{}
		l.mu.Unlock()
	}
	idle := func() bool { n, _, _ := flight(lanes); return n == 0 }
	err := crew.await(drainTimeout, idle, func() error { return nil })
	var inFlight int
	inFlight, out.Sent, out.Refusal = flight(lanes)
	out.Outstanding = int64(inFlight)
	each := int64(w.PerPublish()) // so far these are requests
	out.Sent, out.Outstanding, out.Behind, out.Overdue = each*out.Sent, each*out.Outstanding, each*out.Behind, each*out.Overdue
	return err
}

// PerPublish is how many records leave together.
func (w Publish) PerPublish() int {
	if w.Transport == Lines {
		return w.Records.Batch
	}
	return 1
}

func (w Publish) dialect() Dialect {
	if w.Speak != nil {
		return w.Speak()
	}
	r := w.Records
	if w.Each != nil {
		r = w.Each(r)
	}
	if w.Transport == WebSocket {
		return newFrames(r)
	}
	return newPosts(r, w.Transport == Lines, w.Target)
}

// flight adds up what is in flight and what was sent, and finds a refusal.
func flight(lanes []*lane) (inFlight int, sent int64, refusal error) {
	for i, l := range lanes {
		n, next, why := l.state()
		inFlight += n
		sent += (next - int64(i)) / l.stride
		if refusal == nil {
			refusal = why
		}
	}
	return inFlight, sent, refusal
}

// overdue is how many publishes in flight were due more than a second ago.
func overdue(lanes []*lane, now int64) (n int64) {
	for _, l := range lanes {
		n += l.overdue(now)
	}
	return n
}

// reached is how many numbers have left.
func reached(lanes []*lane) (n int64) {
	_, n, _ = flight(lanes)
	return n
}
