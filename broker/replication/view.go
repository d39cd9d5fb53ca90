package replication

import (
	"slices"

	"tidewire/internal/ident"
)

// View is what the coordinator has decided about a partition, at one version.
type View struct {
	Epoch     ident.Epoch
	Version   uint64
	Leader    ident.NodeID // zero: none
	Replicas  []ident.NodeID
	ISR       []ident.NodeID
	MinInsync int
	// Unclean is the latest leader epoch that began without an in-sync replica: at
	// its start, and only there, committed records may have gone. 0: there was none.
	Unclean ident.Epoch
}

// InSync says whether a node is in the committed ISR.
func (v *View) InSync(n ident.NodeID) bool { return slices.Contains(v.ISR, n) }

// Newer says whether v was decided after w.
func (v *View) Newer(w *View) bool { return v.Version > w.Version }
