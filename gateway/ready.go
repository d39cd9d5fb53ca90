package gateway

import (
	"fmt"
	"time"

	"tidewire/gateway/census"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// What a gateway has to say of being ready is about clients: whether others serve them
// better. Where nobody hears a coordinator nobody does, and what is there is written and
// read on, so it is ready and warns.

// notReady is why this node cannot serve: its own reasons, and what the cluster
// holds of it.
func (g *Gateway) notReady() (reasons []error) {
	if g.cfg.NotReady != nil {
		reasons = g.cfg.NotReady()
	}
	if len(reasons) > 0 {
		return reasons // what it says of itself goes further
	}
	if err := g.door.NotReady(); err != nil {
		reasons = append(reasons, err)
	}
	if why := g.census.CutOff(); why != "" {
		return append(reasons, fault.New(fault.CoordinatorUnavailable,
			"no coordinator has been heard for %s, %s: look at this node's network, and which nodes run; it is ready again once it hears a coordinator", g.heard(), why).After(time.Second))
	}
	switch n := g.cfg.Coordinator.Snapshot().Nodes[g.cfg.Node]; {
	case n == nil:
	case n.State == cluster.Dead:
		reasons = append(reasons, fault.New(fault.LeaderUnavailable, "the cluster takes this node for dead; it registers again by itself once it reaches a coordinator"))
	case n.State == cluster.DrainingState:
		reasons = append(reasons, fault.New(fault.Draining, "the node is drained: it serves those who come, and others serve them better; POST /nodes/{node}/drain {\"cancel\":true} or a restart ends that"))
	}
	return reasons
}

// warnings are what a node that is ready has to say all the same.
func (g *Gateway) warnings() (texts []string) {
	if age := g.census.Age(); age > census.StaleAfter {
		texts = append(texts, "no coordinator has been heard for "+g.heard().String()+": what is there is written and read on, and changes are refused; look which coordinators run")
	}
	if text := diskFull(g.cfg.About().Disk); text != "" {
		texts = append(texts, text)
	}
	return texts
}

// diskFull is what clients of any node feel of this one's disk: this gateway serves them
// as well as others all the same.
func diskFull(d census.Disk) string {
	if d.Free >= d.Least {
		return ""
	}
	return fmt.Sprintf("the data disk has %d MiB free, and below %d MiB takes no records: what this node leads is refused with disk-full; free space or add disk, and it heals by itself", d.Free>>20, d.Least>>20)
}

func (g *Gateway) heard() time.Duration { return g.census.Age().Round(100 * time.Millisecond) }
