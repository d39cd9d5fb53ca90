package broker

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/rpc"
)

var errNoGroups = fault.New(fault.LeaderUnavailable, "this broker does not work for groups yet")

// Take leases records to a member of a group.
func (b *Broker) Take(context.Context, rpc.Take) (rpc.Taken, error) { return rpc.Taken{}, errNoGroups }

// Settle takes in what a member has done with its records.
func (b *Broker) Settle(context.Context, rpc.Settle) (rpc.Settled, error) {
	return rpc.Settled{}, errNoGroups
}

// Standings says how groups stand on partitions that this node leads.
func (b *Broker) Standings(context.Context, rpc.StandingsOf) ([]rpc.GroupStanding, error) {
	return nil, errNoGroups
}

// RecordStatus says what became of a record in every group of its topic.
func (b *Broker) RecordStatus(context.Context, rpc.RecordStatusOf) ([]rpc.RecordStatus, error) {
	return nil, errNoGroups
}
