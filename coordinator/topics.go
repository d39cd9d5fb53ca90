package coordinator

import (
	"context"

	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/ident"
)

// CreateTopic makes a topic; see control.CreateTopic.
func (c *Coordinator) CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	return control.CreateTopic(ctx, c, spec)
}

// AlterTopic changes the settings that are given.
func (c *Coordinator) AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	return control.AlterTopic(ctx, c, name, patch)
}

// DeleteTopic ends a topic's life.
func (c *Coordinator) DeleteTopic(ctx context.Context, name string) error {
	return control.DeleteTopic(ctx, c, name)
}

// Register begins a new life of a node, which counts at once, and gives its broker
// epoch, which is the index of the registration. When it returns the feed has reached
// that index.
func (c *Coordinator) Register(ctx context.Context, n cluster.Node) (ident.BrokerEpoch, error) {
	if n.ID == c.cfg.Node.ID && n.Addresses.Raft == "" {
		n.Addresses.Raft = c.Addr()
	}
	last := ident.BrokerEpoch(0)
	if known := c.Snapshot().Nodes[n.ID]; known != nil {
		last = known.BrokerEpoch
	}
	a, err := c.Propose(ctx, cluster.Change{Register: &cluster.Register{Node: n, Last: last}})
	if err != nil {
		return 0, err
	}
	if _, err := c.Propose(ctx, cluster.Change{Activate: &cluster.Activate{Node: n.ID, Epoch: a.Epoch}}); err != nil {
		return 0, err
	}
	return a.Epoch, nil
}
