package gateway

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/census"
	"tidewire/gateway/pulse"
	"tidewire/gateway/router"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// control decides about topics through the coordinator, and answers once this
// node's own broker has acted on the decision and the leaders of a new topic
// serve: it can be written and read at once, and its description has its offsets.
type control struct {
	Coordinator
	broker  Broker
	router  *router.Router
	age     func() time.Duration // since a coordinator was heard
	propose func(ctx context.Context, change cluster.Change) (cluster.Answer, error)
}

const (
	// decideTime bounds the wait for a decision: a coordinator that fails has a
	// successor by then. Where none has been heard for a while there is hardly one.
	decideTime = 5 * time.Second
	deafTime   = time.Second
	// settleTime bounds the wait for brokers. The decision stands whether they have
	// acted or not, so nothing fails when the time is over.
	settleTime = 2 * time.Second
	// firstLook and lastLook bound the pause between two looks at a partition that is
	// not served yet.
	firstLook = 2 * time.Millisecond
	lastLook  = 100 * time.Millisecond
	// looks is how many partitions are looked at at once.
	looks = 16
)

// deciding bounds a call to the coordinator.
func (c control) deciding(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.age() > census.StaleAfter {
		return context.WithTimeout(ctx, deafTime)
	}
	return context.WithTimeout(ctx, decideTime)
}

// settle waits for this node's snapshot and broker.
func (c control) settle(ctx context.Context, index uint64) {
	if index > 0 {
		if _, err := c.Next(ctx, index-1); err != nil {
			return // only the time or the client can be over
		}
	}
	if c.broker != nil {
		_ = c.broker.Reached(ctx, index) // likewise
	}
}

// led waits until the partitions of a topic are served.
func (c control) led(ctx context.Context, t *cluster.Topic) {
	var g errgroup.Group
	g.SetLimit(looks)
	for i := range t.Partitions {
		g.Go(func() error {
			for pause := firstLook; ; pause = min(2*pause, lastLook) {
				if _, err := c.router.Bounds(ctx, t.Ref(t.Partitions[i].Index)); err == nil {
					return nil
				}
				timer := time.NewTimer(pause)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					return nil
				}
			}
		})
	}
	_ = g.Wait() // none fails
}

func (c control) CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	decided, done := c.deciding(ctx)
	defer done()
	t, created, err := c.Coordinator.CreateTopic(decided, spec)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		c.settle(ctx, t.Modified)
		c.led(ctx, t)
	}
	return t, created, err
}

func (c control) AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	decided, done := c.deciding(ctx)
	defer done()
	t, err := c.Coordinator.AlterTopic(decided, name, patch)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		c.settle(ctx, t.Modified)
	}
	return t, err
}

func (c control) DeleteTopic(ctx context.Context, name string) error {
	decided, done := c.deciding(ctx)
	defer done()
	err := c.Coordinator.DeleteTopic(decided, name)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		c.settle(ctx, c.Snapshot().Index)
	}
	return err
}

// decide asks the coordinator for a change; a refusal is an error.
func (c control) decide(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	if c.propose == nil {
		return cluster.Answer{}, errNoCoordinator
	}
	ctx, end := c.deciding(ctx)
	defer end()
	a, err := c.propose(ctx, change)
	if err == nil && a.Refusal != nil {
		err = a.Refusal.Fault()
	}
	return a, err
}

var errNoCoordinator = fault.New(fault.CoordinatorUnavailable, "this node has no way to ask the coordinator for that")

// told is how signs of life are told.
func told(touch pulse.Touch) pulse.Touch {
	if touch == nil {
		return func(context.Context, []cluster.SignOfLife) (cluster.Lost, error) {
			return cluster.Lost{}, errNoCoordinator
		}
	}
	return touch
}

// Drain takes the leadership of everything off a node, or ends that.
func (c control) Drain(ctx context.Context, node ident.NodeID, cancel bool) error {
	a, err := c.decide(ctx, cluster.Change{Drain: &cluster.Drain{Node: node, Cancel: cancel}})
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, settleTime)
	defer done()
	c.settle(ctx, a.Index)
	return nil
}
