package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Fanout is one publisher and many subscribers. With one subscriber and a rate
// it measures the way of a message from end to end.
type Fanout struct {
	Target      Target
	Records     Records // Keys is set by OwnKeys
	Transport   string  // of the subscribers: WebSocket or SSE
	Subscribers int
	OwnKeys     bool    // each subscriber reads a key of its own, each message has one reader
	Window      int     // messages in flight; the next leaves when one has reached everybody
	Rate        float64 // messages a second; 0: a closed loop by Window
	Plan        Plan

	// Speak and Listen are of another server than Tidewire; nil: it is Tidewire.
	Speak  func() Dialect
	Listen func(subscriber int) Ear

	// Stalled and Slow are further subscribers that read nothing, and a hundredth
	// of what there is. With them each run is measured twice: without and with.
	Stalled, Slow int
}

// publishWindow bounds what the publisher of an open loop has in flight.
const publishWindow = 4096

// Run puts the load on and measures it.
func (f Fanout) Run(ctx context.Context, p Progress) (Outcome, error) {
	crew, err := newCrew(ctx, f.Subscribers, f.gather())
	if err != nil {
		return Outcome{}, err
	}
	defer crew.stop()
	g, err := f.stage(crew, p)
	if err != nil {
		return Outcome{}, err
	}
	if f.Rate > 0 {
		g.clock.follow(f.Rate)
		crew.run(func() error { return pace(crew.ctx, g.clock, g.due, []*lane{g.publisher}) })
	} else {
		g.due.Store(int64(f.Window))
		if err := g.publisher.pump(g.clock.now()); err != nil {
			return Outcome{}, err
		}
	}
	m := &meter{crew: crew, pids: f.Target.PIDs(), beside: g.publisher.rec, stalled: func() string { return f.missing(g) }}
	for _, s := range g.shares {
		m.recs = append(m.recs, s.rec)
	}
	out := Outcome{}
	if f.Stalled+f.Slow > 0 {
		err = f.pairs(m, p, &out)
	} else {
		out.Runs, err = m.runs(f.Plan, p)
	}
	if err != nil {
		return out, err
	}
	return out, f.drain(crew, g, m, &out)
}

// Wanted is how many deliveries a second an open loop is to have; 0: a closed one.
func (f Fanout) Wanted() float64 {
	if f.OwnKeys {
		return f.Rate
	}
	return f.Rate * float64(f.Subscribers)
}

const (
	// gatherTime is what the readers of many subscribers let come together. It is
	// a hundredth of what a message takes to so many.
	gatherTime = 100 * time.Microsecond
	gatherFrom = 1000
)

func (f Fanout) gather() time.Duration {
	if f.Rate > 0 || f.OwnKeys || f.Subscribers < gatherFrom {
		return 0 // it would be measured
	}
	return gatherTime
}

// stage connects everybody. No message leaves before all have subscribed.
func (f Fanout) stage(crew *crew, p Progress) (*stage, error) {
	g := &stage{clock: newClock(), due: &atomic.Int64{}, ownKeys: f.OwnKeys}
	window := publishWindow
	if f.Rate == 0 {
		window, g.window = f.Window, int64(f.Window)
		g.clock.keep(f.Window)
	}
	for i := range crew.loops {
		s := &share{stage: g, rec: newRecorder(), clock: g.clock, subscribers: (f.Subscribers + len(crew.loops) - 1 - i) / len(crew.loops)}
		if g.window > 0 && !f.OwnKeys {
			s.counts = make([]int32, powerOfTwo(f.Window))
		}
		g.shares = append(g.shares, s)
	}
	records := f.Records
	if f.OwnKeys {
		records.Keys = f.Subscribers
	}
	// What the publisher hears is checked, not counted: deliveries are.
	var speak Dialect = newFrames(records)
	if f.Speak != nil {
		speak = f.Speak()
	}
	g.publisher = newLane(crew, g.clock, newRecorder(), speak, g.due, window, 0, 1)
	g.publisher.strict = true // every subscriber would miss the message, and it would look like a loss
	if err := g.publisher.open(f.Target, crew.loops[0]); err != nil {
		return nil, fmt.Errorf("the publisher: %w", err)
	}
	return g, crew.each(f.Subscribers, "connecting subscribers", p, func(i int) error {
		return f.subscriber(crew, g, i)
	})
}

func (f Fanout) subscriber(crew *crew, g *stage, i int) error {
	s := newSubscriber(fmt.Sprintf("subscriber %d", i+1), g.shares[i%len(g.shares)], f.Records.Bytes, crew.fail)
	sub := subscription{topic: f.Records.Topic}
	if f.OwnKeys {
		sub.key = KeyName(i)
		s.expect(int64(i), int64(f.Subscribers))
	}
	var err error
	if f.Listen != nil {
		err = s.listen(f.Target.turn(i), f.Listen(i))
	} else {
		err = s.open(f.Target.turn(i), f.Transport, sub)
	}
	if err != nil {
		return err
	}
	if err := crew.loops[i%len(crew.loops)].Add(s.conn, s); err != nil {
		s.conn.Cut()
		return err
	}
	return nil
}

// drain publishes no more and waits until everything has reached everybody.
func (f Fanout) drain(crew *crew, g *stage, m *meter, out *Outcome) error {
	if f.Rate > 0 {
		_, sent, _ := g.publisher.state()
		now := g.clock.now()
		out.Behind, out.Overdue = max(0, g.clock.plan.Load().due(now)-sent), g.publisher.overdue(now)
	}
	g.frozen.Store(true)
	g.publisher.mu.Lock()
	g.publisher.due = &atomic.Int64{} // it stands still where it is
	g.publisher.mu.Unlock()
	_, out.Sent, _ = g.publisher.state()
	want := out.Sent
	if f.Rate > 0 && !f.OwnKeys { // a share of an open loop counts deliveries
		over := func() bool {
			for _, s := range g.shares {
				if s.done.Load() < want*int64(s.subscribers) {
					return false
				}
			}
			return true
		}
		if err := crew.await(drainTimeout, over, func() error { return nil }); err != nil {
			return err
		}
		for _, s := range g.shares {
			out.Outstanding += want*int64(s.subscribers) - s.done.Load()
		}
	} else {
		if err := crew.await(drainTimeout, func() bool { return g.reached() >= want }, func() error { return nil }); err != nil {
			return err
		}
		out.Outstanding = want - g.reached()
	}
	_, _, out.Refusal = g.publisher.state()
	rest := m.take()
	if n := len(out.Runs); n > 0 { // what the end of the last run had in flight
		out.Runs[n-1].Lost += rest.Lost
		out.Runs[n-1].Dupes += rest.Duplicates
	}
	return nil
}

// missing says what a load that stands still waits for.
func (f Fanout) missing(g *stage) string {
	inFlight, sent, refusal := g.publisher.state()
	text := fmt.Sprintf("%d messages are published, %d are not acknowledged, the first %d have reached everybody", sent, inFlight, g.reached())
	if refusal != nil {
		text += "; " + refusal.Error()
	}
	return text
}
