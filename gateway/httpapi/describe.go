package httpapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// describer writes topics as clients see them: what the cluster has decided,
// and where each partition's records begin and end at its leader.
type describer struct {
	names  names
	bounds map[ident.Partition]rpc.Bounds
}

func (a *API) describer(ctx context.Context, s *cluster.Snapshot, topics ...*cluster.Topic) describer {
	return describer{names: namesOf(s), bounds: a.cfg.Nodes.Bounds(ctx, topics...)}
}

func (d describer) appendTopic(b []byte, t *cluster.Topic) []byte {
	s := &t.Settings
	retention := wire.Begin(nil).Str("age", formatDuration(s.RetentionAge)).Int("bytes", s.RetentionBytes).Close()
	return wire.Begin(b).
		Str("id", t.ID.String()).
		Str("name", t.Name).
		Int("partitions", int64(live(t))).
		Int("replicas", int64(s.Replicas)).
		Int("min_insync", int64(s.MinInsync)).
		Raw("retention", retention).
		Bool("compaction", false).
		Int("max_message_bytes", int64(s.MaxMessageBytes)).
		Str("durability", string(s.Durability)).
		Bool("unclean", s.Unclean).
		Str("idempotency_window", formatDuration(s.IdempotencyWindow)).
		Time("created", t.Created.UnixMilli()).
		Raw("layout", d.layout(t)).
		Close()
}

// live counts the partitions of the newest generation.
func live(t *cluster.Topic) (n int) {
	for i := range t.Partitions {
		if topology.Live(&t.Partitions[i]) {
			n++
		}
	}
	return n
}

func (d describer) layout(t *cluster.Topic) []byte {
	list := []byte{'['}
	for i := range t.Partitions {
		if i > 0 {
			list = append(list, ',')
		}
		list = d.appendPartition(list, t, &t.Partitions[i])
	}
	return wire.Begin(nil).Int("generation", int64(t.Generation)).Raw("partitions", append(list, ']')).Close()
}

var null = []byte("null")

func (d describer) appendPartition(b []byte, t *cluster.Topic, p *cluster.Partition) []byte {
	l := wire.Begin(b).
		Int("id", int64(p.Index)).
		Int("lo", int64(p.Range.Lo)).
		Int("hi", int64(p.Range.Hi)).
		Raw("parents", indexes(p.Parents)).
		Raw("children", indexes(p.Children)).
		Str("state", string(p.State))
	if p.Leader == (ident.NodeID{}) {
		l.Raw("leader", null)
	} else {
		l.Str("leader", d.names.of(p.Leader))
	}
	l.Int("leader_epoch", int64(p.LeaderEpoch)).
		Raw("replicas", d.names.list(p.Replicas)).
		Raw("isr", d.names.list(p.ISR))
	if b, ok := d.bounds[t.Ref(p.Index)]; ok {
		if p.Unclamped == 0 { // what its leader said last may be from before a purge
			b.Start = max(b.Start, min(p.Purged, b.HW))
		}
		l.Int("earliest", int64(b.Start)).Int("hw", int64(b.HW))
	} else {
		// Nobody leads it at the moment, or its leader does not answer.
		l.Raw("earliest", null).Raw("hw", null)
	}
	return l.Close()
}

func indexes(list []ident.Index) []byte {
	b := []byte{'['}
	for i, p := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(p), 10)
	}
	return append(b, ']')
}

// names are the nodes as descriptions call them: by name, or by id where two
// share a name or the node is not known.
type names map[ident.NodeID]string

func namesOf(s *cluster.Snapshot) names {
	count := map[string]int{}
	for _, n := range s.Nodes {
		count[n.Name]++
	}
	out := make(names, len(s.Nodes))
	for id, n := range s.Nodes {
		if n.Name != "" && count[n.Name] == 1 {
			out[id] = n.Name
		}
	}
	return out
}

func (n names) of(id ident.NodeID) string {
	if name, ok := n[id]; ok {
		return name
	}
	return id.String()
}

func (n names) list(ids []ident.NodeID) []byte {
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, n.of(id))
	}
	return append(b, ']')
}

// formatDuration is Duration.String without the parts that are 0: 168h, not
// 168h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
