package load

import (
	"sync/atomic"
)

// share is the subscribers that one loop reads. How far they are is counted here
// without a word to the other loops, until a message has reached all of them.
type share struct {
	stage *stage
	rec   *recorder
	clock *clock
	now   int64 // of the read under way

	subscribers int
	counts      []int32 // of the messages in flight, by the low bits of their number
	changed     bool    // done has moved in this read

	// done is the first number that has not reached all of the share. Where each
	// message has one subscriber it is how many have been delivered.
	done atomic.Int64
}

func (s *share) begin() {
	s.rec.mu.Lock()
	s.now = s.clock.now()
}

func (s *share) end() { s.rec.mu.Unlock() }

// deliver notes that message n has reached a subscriber, which stands for fresh
// of its messages: more than one where some were lost, so that a loss is
// reported and does not end the load as a stall.
func (s *share) deliver(n, fresh, lost, duplicates int64) {
	s.rec.messages++
	s.rec.moved.Add(1)
	s.rec.lost += lost
	s.rec.duplicates += duplicates
	if fresh == 0 {
		return
	}
	s.rec.latency.Record(s.now - s.clock.left(n))
	switch {
	case s.stage.ownKeys:
		s.done.Add(fresh)
		s.changed = true
	case s.counts != nil:
		for k := n - fresh + 1; k <= n; k++ {
			at := &s.counts[k&int64(len(s.counts)-1)]
			if *at++; int(*at) == s.subscribers {
				*at = 0
				s.done.Store(k + 1)
				s.changed = true
			}
		}
	default:
		s.done.Add(fresh) // an open loop only wants to know when all is in
	}
}

// stage is all shares and the publisher in front of them.
type stage struct {
	clock     *clock
	publisher *lane
	shares    []*share
	due       *atomic.Int64
	window    int64 // messages in flight; 0: an open loop
	ownKeys   bool  // each message has one subscriber
	frozen    atomic.Bool
}

// reached is the number up to which everything has reached everybody.
func (g *stage) reached() int64 {
	var n int64
	for i, s := range g.shares {
		switch done := s.done.Load(); {
		case g.ownKeys:
			n += done
		case i == 0 || done < n:
			n = done
		}
	}
	return n
}

// advance lets the publisher go on where a share has got further.
func (g *stage) advance(s *share) error {
	if !s.changed || g.window == 0 || g.frozen.Load() {
		return nil
	}
	s.changed = false
	to := g.reached() + g.window
	for {
		was := g.due.Load()
		if to <= was {
			return nil
		}
		if g.due.CompareAndSwap(was, to) {
			return g.publisher.pump(g.clock.now())
		}
	}
}
