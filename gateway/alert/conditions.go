package alert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// condition is what there is to be said where one holds.
type condition struct {
	topic, detail, advice string
	patience              time.Duration // before it is worth an alert, where that is more than the rule's
}

// defaultLeast stands for a node that does not say below which free space it
// takes no records.
const defaultLeast = 512 << 20

func conditions(in Input) map[key]condition {
	out := map[key]condition{}
	s := in.Snapshot
	names := func(ids []ident.NodeID) string { return strings.Join(s.NamesOf(ids), ", ") }
	for id, n := range s.Nodes {
		if c, down := down(in, n); down {
			out[key{alert: NodeDown, node: id}] = c
		}
		disk(out, s, id, in.Reports)
	}
	for _, t := range s.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			ref := t.Ref(p.Index)
			if want := wanted(t, p); len(p.ISR) < want {
				out[key{alert: UnderReplicated, part: ref}] = condition{
					topic:  t.Name,
					detail: fmt.Sprintf("partition %d of topic %s has %d of %d replicas in sync (%s); it takes acks=all with %d", p.Index, t.Name, len(p.ISR), want, names(p.ISR), t.Settings.MinInsync),
					advice: "See GET /nodes/ for nodes that are down; a replica that comes back catches up by itself, and one that is missing is placed once there is a broker for it.",
				}
			}
			for _, id := range p.Replicas {
				n := s.Nodes[id]
				if n == nil || n.State == cluster.Dead || slices.Contains(p.ISR, id) || slices.Contains(p.Adding, id) {
					continue
				}
				out[key{alert: ReplicaLag, part: ref, node: id}] = condition{
					topic:  t.Name,
					detail: fmt.Sprintf("the replica of partition %d of topic %s on node %s is not in sync though the node is up", p.Index, t.Name, s.NameOf(id)),
					advice: "It is catching up, or its disk or network does not keep up with the leader's: look at that node's load and at /metrics.",
				}
			}
		}
	}
	for id, r := range in.Reports {
		for _, ref := range r.Corrupt {
			if t := s.ByID[ref.Topic]; t != nil && s.Nodes[id] != nil {
				out[key{alert: CorruptReplica, part: ref, node: id}] = corrupt(s, t, ref, id)
			}
		}
	}
	for id, r := range in.Reports {
		paused(out, s, id, r.Paused)
	}
	return out
}

// paused takes in what a node says of groups on partitions that it leads.
func paused(out map[key]condition, s *cluster.Snapshot, id ident.NodeID, all []Pause) {
	for _, pause := range all {
		ref := pause.Partition
		t := s.ByID[ref.Topic]
		if t == nil || leader(s, ref) != id || s.Groups[ref.Topic].Get(pause.Group) == nil {
			continue
		}
		out[key{alert: GroupPaused, part: ref, group: pause.Group}] = condition{
			topic:  t.Name,
			detail: fmt.Sprintf("group %s gets nothing new of partition %d of topic %s: %d records of it are not done", pause.Group, ref.Index, t.Name, cluster.MaxUnfinished),
			advice: "One of the earliest of them is not acknowledged, or its retries wait: GET /groups/{topic}/{group} tells committed and oldest_unacked. Acknowledge, nack or reject it, or add members.",
		}
	}
}

// leader of a partition; zero: nobody.
func leader(s *cluster.Snapshot, ref ident.Partition) ident.NodeID {
	if t := s.ByID[ref.Topic]; t != nil {
		if p, ok := t.Partition(ref.Index); ok {
			return p.Leader
		}
	}
	return ident.NodeID{}
}

// wanted is how many replicas of a partition should be in sync: as many as it is to have,
// but that those which come for a move have yet to catch up.
func wanted(t *cluster.Topic, p *cluster.Partition) int {
	if len(p.Adding) > 0 {
		return min(len(p.Replicas)-len(p.Adding), t.Settings.Replicas)
	}
	return t.Settings.Replicas
}

// down says that a node is: the cluster has declared its life over, or nobody can
// tell and it does not answer.
func down(in Input, n *cluster.Node) (condition, bool) {
	who := in.Snapshot.NameOf(n.ID)
	switch {
	case n.Coming():
		return condition{
			detail: fmt.Sprintf("node %s has registered and does not come to serve", who),
			advice: "Look into its log: it may recover a large folder, or its disk may hang.", patience: comingTime,
		}, true
	case n.State == cluster.Dead:
		return condition{
			detail: fmt.Sprintf("node %s is down", who),
			advice: "Start it again with its data folder, or look into its log; what it held is copied to other nodes once it has been down for replica_replace.",
		}, true
	case in.Stale && in.Silent[n.ID]:
		return condition{
			detail: fmt.Sprintf("node %s does not answer this one, which hears no coordinator that could tell more", who),
			advice: "Look which coordinators run, and at the network between them and this node: without most of them nothing is decided.",
		}, true
	}
	return condition{}, false
}

// unsure reports that nobody knows whether a condition still holds, or that a
// figure lies between two bounds: what was said of it stands.
func unsure(in Input, k key) bool {
	if k.alert == GroupPaused { // who leads and does not answer may see it still
		_, said := in.Reports[leader(in.Snapshot, k.part)]
		return !said && in.Snapshot.Groups[k.part.Topic].Get(k.group) != nil
	}
	if in.Snapshot.Nodes[k.node] == nil {
		return false
	}
	r, said := in.Reports[k.node]
	switch k.alert {
	case CorruptReplica:
		return !said && in.Snapshot.ByID[k.part.Topic] != nil
	case DiskSpace:
		least := r.least()
		return !said || r.Free < 2*least+least/2
	}
	return false
}

// least is below which free space the node takes no records.
func (r Report) least() int64 {
	if r.Least > 0 {
		return r.Least
	}
	return defaultLeast
}

func corrupt(s *cluster.Snapshot, t *cluster.Topic, ref ident.Partition, id ident.NodeID) condition {
	return condition{
		topic:  t.Name,
		detail: fmt.Sprintf("the replica of partition %d of topic %s on node %s is corrupt: nothing is served past the damage", ref.Index, t.Name, s.NameOf(id)),
		advice: "It is fetched again from the leader, and the damaged files are set aside; `tidewire log verify` on that node says what is damaged. Look at its disk. A lone replica is not repaired by itself.",
	}
}

// disk fires below twice what a node needs to take records, and resolves above
// two and a half times that.
func disk(out map[key]condition, s *cluster.Snapshot, id ident.NodeID, reports map[ident.NodeID]Report) {
	r, said := reports[id]
	if least := r.least(); said && r.Free < 2*least {
		out[key{alert: DiskSpace, node: id}] = condition{
			detail: fmt.Sprintf("node %s has %d MiB free on its data disk; below %d MiB it takes no records", s.NameOf(id), r.Free>>20, least>>20),
			advice: "Free space or add disk, or lower the retention of topics: it heals by itself.",
		}
	}
}
