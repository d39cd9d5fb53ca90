package host

import (
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// tellUnclean logs that this node leads a partition from now on and may lack records of it
// that were acknowledged: by whoever leads, and so once, however the election came about.
// before is the snapshot that was acted on last.
func (h *Host) tellUnclean(before *cluster.Snapshot, t *cluster.Topic, part *cluster.Partition, end ident.Offset) {
	if part.Leader != h.cfg.Node || part.Unclean == 0 || part.Unclean != part.LeaderEpoch {
		return
	}
	led, inSync := "nobody", []string{}
	if old := before.ByID[t.ID]; old != nil {
		p, ok := old.Partition(part.Index)
		if ok && p.LeaderEpoch == part.LeaderEpoch {
			return // that was told
		}
		if ok && p.Leader != (ident.NodeID{}) {
			led = before.NameOf(p.Leader)
		}
		if ok {
			inSync = before.NamesOf(p.ISR)
		}
	}
	h.cfg.Logger.Warn("an unclean election: this node leads a partition and may lack records that were acknowledged. All that those in sync before hold behind the end of its log is lost to the topic",
		"topic", t.Name, "partition", part.Index, "leader", h.nameOf(part.Leader), "before", led, "in_sync", inSync, "epoch", part.LeaderEpoch, "end", end)
}

func (h *Host) nameOf(id ident.NodeID) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.snapshot.NameOf(id)
}
