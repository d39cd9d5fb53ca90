package gateway

import (
	"context"
	"sync"
	"time"

	"tidewire/gateway/census"
	"tidewire/gateway/deliver"
	"tidewire/gateway/publish"
	"tidewire/gateway/seats"
)

const (
	// sampleEvery is how often the counters behind the rates are read.
	sampleEvery = time.Second
	// rateOver is what a rate is an average of, in samples.
	rateOver = 5
)

// figures is what this node says of itself.
type figures struct {
	about     func() census.Figures
	publisher *publish.Publisher
	delivered *deliver.Metrics
	seats     *seats.Seats

	mu      sync.Mutex
	samples []sample // oldest first, at most rateOver+1
}

// sample is the counters at one moment.
type sample struct {
	at                    time.Time
	in, inBytes           int64
	delivered, deliveredB int64
}

func newFigures(about func() census.Figures, p *publish.Publisher, d *deliver.Metrics, s *seats.Seats) *figures {
	return &figures{about: about, publisher: p, delivered: d, seats: s}
}

// run reads the counters until ctx ends.
func (f *figures) run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		f.take()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *figures) take() {
	s := sample{at: time.Now()}
	s.in, s.inBytes = f.publisher.Kept()
	s.delivered, s.deliveredB = f.delivered.Totals()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples = append(f.samples, s)
	if len(f.samples) > rateOver+1 {
		f.samples = append(f.samples[:0], f.samples[1:]...)
	}
}

func (f *figures) rates() (r census.Rates) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.samples) < 2 {
		return r
	}
	a, b := f.samples[0], f.samples[len(f.samples)-1]
	seconds := b.at.Sub(a.at).Seconds()
	return census.Rates{
		InRecords: float64(b.in-a.in) / seconds, InBytes: float64(b.inBytes-a.inBytes) / seconds,
		OutMessages: float64(b.delivered-a.delivered) / seconds, OutBytes: float64(b.deliveredB-a.deliveredB) / seconds,
	}
}

// Figures of this node at this moment.
func (f *figures) Figures() census.Figures {
	out := f.about()
	out.Connections, out.Rates = f.seats.Taken(), f.rates()
	return out
}
