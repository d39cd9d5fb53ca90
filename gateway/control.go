package gateway

import (
	"context"
	"time"

	"tidewire/internal/cluster"
)

// control decides about topics through the coordinator, and answers once this
// node's own broker has acted on the decision: a topic that was created can be
// written and read at once, and its description has its offsets.
type control struct {
	Coordinator
	broker Broker
}

// settleTime bounds the wait for the node's own broker. The decision stands
// whether it has acted or not, so nothing fails when the time is over.
const settleTime = 2 * time.Second

func (c control) settle(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_ = c.broker.Reached(ctx, index) // only the time or the client can be over
}

func (c control) CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	t, created, err := c.Coordinator.CreateTopic(ctx, spec)
	if err == nil {
		c.settle(ctx, t.Modified)
	}
	return t, created, err
}

func (c control) AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	t, err := c.Coordinator.AlterTopic(ctx, name, patch)
	if err == nil {
		c.settle(ctx, t.Modified)
	}
	return t, err
}

func (c control) DeleteTopic(ctx context.Context, name string) error {
	err := c.Coordinator.DeleteTopic(ctx, name)
	if err == nil {
		c.settle(ctx, c.Snapshot().Index)
	}
	return err
}
