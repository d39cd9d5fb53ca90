package session

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// noGroups answers the ops of groups on a node that has none.
func (s *session) noGroups(context.Context, *wire.Frame) error {
	return fault.New(fault.CoordinatorUnavailable, "this node does not serve groups")
}
