package coordinator

import (
	"context"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/sleep"
)

// govern begins a rule whenever this node comes to lead, and ends it when it does
// not any more.
func (c *Coordinator) govern(ctx context.Context) error {
	leads := false
	for {
		term, end := context.WithCancel(ctx)
		var rule sync.WaitGroup
		if leads {
			rule.Go(func() { c.reign(term) })
		}
		select {
		case leads = <-c.node.Leads(): // led again, it begins anew: another may have led between
		case <-ctx.Done():
		}
		end()
		rule.Wait()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// reign rules from the moment at which everything that former leaders committed is
// applied here.
func (c *Coordinator) reign(ctx context.Context) {
	for {
		err := c.node.Barrier(ctx)
		if err == nil {
			break
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return
		}
	}
	c.machine.publish()
	c.metrics.led.Inc()
	r := newRule(c)
	c.rules.Store(r)
	defer c.rules.Store(nil)
	r.run(ctx)
}

// interrupted is what callers hear whom the end of a rule leaves without an answer.
func interrupted() *fault.Error {
	return fault.New(fault.CoordinatorUnavailable, "this coordinator has ceased to lead").After(time.Second)
}
