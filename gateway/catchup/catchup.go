package catchup

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"tidewire/internal/cluster"
	"tidewire/internal/sleep"
)

// Coordinator is the cluster's, wherever it leads, and its change feed here.
type Coordinator interface {
	Snapshot() *cluster.Snapshot
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
	// Decided is the index of the latest change of a snapshot that anybody can have had an
	// answer to before the call.
	Decided(ctx context.Context) (uint64, error)
}

const (
	// limit bounds a flight: a leader that died has a successor by then, as a rule.
	limit = 2 * time.Second
	// tryLimit bounds one call: a coordinator that is paused does not use up the time in
	// which its successor could answer.
	tryLimit = 500 * time.Millisecond
	// rest is for how long nobody waits after one that failed.
	rest = time.Second
	// leastPause and mostPause bound the wait for a coordinator that did not answer.
	leastPause = 10 * time.Millisecond
	mostPause  = 100 * time.Millisecond
	// perSecond bounds the flights, after a few at once.
	perSecond = 50
	atOnce    = 20
)

// CatchUp is a node's snapshot, and a way to have it brought up to date. It is safe for
// concurrent use.
type CatchUp struct {
	of      Coordinator
	pace    *rate.Limiter
	turn    chan struct{} // holds a token while a flight is under way
	metrics metrics

	life   context.Context // of flights
	end    context.CancelFunc
	flying sync.WaitGroup

	mu      sync.Mutex
	next    *flight   // that has yet to begin; nil: none
	resting time.Time // until when nobody waits
	over    bool      // Run has ended
}

// flight is one catch-up, of all who came before it began.
type flight struct{ landed chan struct{} }

// New makes one, which works until the end of Run.
func New(of Coordinator, r prometheus.Registerer) *CatchUp {
	c := &CatchUp{of: of, pace: rate.NewLimiter(perSecond, atOnce), turn: make(chan struct{}, 1), metrics: newMetrics(r)}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Run waits until ctx ends, and ends what is under way.
func (c *CatchUp) Run(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.end()
	c.flying.Wait()
	return nil
}

// Snapshot is the newest snapshot that this node has.
func (c *CatchUp) Snapshot() *cluster.Snapshot { return c.of.Snapshot() }

// CatchUp returns once the snapshot has everything that was answered anywhere before the
// call, or when ctx ends, or where that cannot be had: after two seconds, or at once where
// it could not be had a moment ago.
func (c *CatchUp) CatchUp(ctx context.Context) {
	f := c.board()
	if f == nil {
		return
	}
	select {
	case <-f.landed:
	case <-ctx.Done(): // it goes on for the others
	}
}

// board gives the next flight; nil: nobody is to wait.
func (c *CatchUp) board() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || time.Now().Before(c.resting) {
		return nil
	}
	if c.next == nil {
		f := &flight{make(chan struct{})}
		c.next = f
		c.flying.Go(func() { c.fly(f) })
	}
	return c.next
}

func (c *CatchUp) fly(f *flight) {
	defer close(f.landed)
	c.turn <- struct{}{} // the one before has its limit
	defer func() { <-c.turn }()
	ctx, cancel := context.WithTimeout(c.life, limit)
	defer cancel()
	_ = c.pace.Wait(ctx) // its wait is much shorter than the limit
	c.mu.Lock()
	c.next = nil // who comes from now on may ask about what is younger
	rests := time.Now().Before(c.resting)
	c.mu.Unlock()
	if rests { // the one before has failed
		return
	}
	if c.reach(ctx) {
		c.metrics.reached.Inc()
		return
	}
	c.metrics.failed.Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resting = time.Now().Add(rest)
}

// reach asks until somebody answers, and waits for what that was.
func (c *CatchUp) reach(ctx context.Context) bool {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		tried, cancel := context.WithTimeout(ctx, tryLimit)
		index, err := c.of.Decided(tried)
		cancel()
		if err != nil {
			if !sleep.For(ctx, pause) {
				return false
			}
			continue
		}
		_, err = c.of.Next(ctx, index-min(index, 1))
		return err == nil
	}
}
