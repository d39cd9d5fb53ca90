package coordinator

import (
	"context"

	"tidewire/internal/cluster"
)

// Decree is decree, for tests with several coordinators.
func (c *Coordinator) Decree(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	return c.decree(ctx, change)
}
