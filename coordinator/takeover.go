package coordinator

import (
	"log/slog"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// logTakeovers tells of the takeovers among elections that were made: once each, since
// only the coordinator that leads asks for them. before is how things stood when they
// were asked for.
func logTakeovers(logger *slog.Logger, before *cluster.Snapshot, c *cluster.Elect, taken []bool) {
	for i, of := range c.Of {
		t := before.ByID[of.Partition.Topic]
		if !of.Takeover || i >= len(taken) || !taken[i] || t == nil {
			continue
		}
		p, ok := t.Partition(of.Partition.Index)
		if !ok {
			continue
		}
		why, from := "its leader has too few replicas in sync and does not bring in this one, which is alive and holds all that is committed", "nobody"
		if p.Leader == (ident.NodeID{}) {
			why = "nobody leads it and nobody in sync comes back; this replica is alive and holds all that is committed"
		} else {
			from = before.NameOf(p.Leader)
		}
		logger.Warn("a replica takes over the lead of a partition", "topic", t.Name, "partition", p.Index, "leader", before.NameOf(of.Leader), "before", from,
			"in_sync", before.NamesOf(p.ISR), "min_insync", t.Settings.MinInsync, "reason", why)
	}
}
