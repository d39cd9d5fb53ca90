package load

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Fill publishes so many records, as quickly as they are taken, and measures nothing. All
// are kept when it returns.
func (w Publish) Fill(ctx context.Context, records int, p Progress) error {
	crew, err := newCrew(ctx, w.Publishers, 0)
	if err != nil {
		return err
	}
	defer crew.stop()
	due, recs := &atomic.Int64{}, newRecorders(crew)
	due.Store(int64(records))
	lanes, err := w.lanes(crew, newClock(), recs, due, p)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		l.strict = true
		if err := l.pump(0); err != nil {
			return err
		}
	}
	p.Phase("publishing the backlog", records)
	kept := (&meter{recs: recs}).moved // every answer is one
	return crew.reach(int64(records), kept, "kept", p)
}

// reach waits until a count of records is full, and ends a load in which it stands still.
func (c *crew) reach(full int64, count func() int64, done string, p Progress) error {
	last, moved := int64(0), time.Now()
	return c.await(math.MaxInt64, func() bool {
		n := count()
		if n != last {
			p.Step(int(n))
			last, moved = n, time.Now()
		}
		if n < full && time.Since(moved) > stallTimeout {
			c.fail(fmt.Errorf("nothing has been %s for %s: %d of %d records are", done, stallTimeout, n, full))
		}
		return n >= full
	}, nil)
}
