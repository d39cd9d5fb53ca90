package session

import (
	"context"
	"strconv"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// handlers are the ops. A handler runs on the reader's goroutine, so what one
// connection asks for happens in its order; the error it returns is its answer.
var handlers = map[string]func(*session, context.Context, *wire.Frame) error{
	"hello":       (*session).hello,
	"auth":        (*session).auth,
	"publish":     (*session).publish,
	"subscribe":   (*session).subscribe,
	"unsubscribe": (*session).unsubscribe,
	"credit":      (*session).credit,
	"metadata":    (*session).metadata,
	"join":        (*session).join,
	"ack":         (*session).settle,
	"nack":        (*session).settle,
	"extend":      (*session).settle,
	"reject":      (*session).settle,
	"leave":       (*session).leave,
	"request":     (*session).request,
	"reply":       (*session).reply,
}

func (s *session) welcome(id int64) []byte {
	limits := wire.Begin(nil).
		Int("max_frame_bytes", int64(s.m.cfg.MaxFrameBytes)).
		Int("max_subscriptions", int64(s.m.cfg.MaxSubscriptions)).
		Int("max_in_flight_publishes", MaxInFlightPublishes).
		Int("max_in_flight_requests", MaxInFlightRequests).
		Int("max_keys", wire.MaxKeys).
		Close()
	return wire.Open(nil, "welcome").ID(id).
		Str("connection", s.id).Str("node", s.m.cfg.Node).Str("ping", s.m.cfg.Ping.String()).Raw("limits", limits).
		Close()
}

// metadata answers with a topic's layout, by which clients map keys to
// partitions.
func (s *session) metadata(ctx context.Context, f *wire.Frame) error {
	if err := s.grant.Knows(f.Topic); err != nil {
		return err
	}
	t, err := topology.Topic(ctx, s.m.cfg.Topology, f.Topic)
	if err != nil {
		return err
	}
	snap := s.m.cfg.Topology.Snapshot() // for the nodes' names
	list := []byte{'['}
	for i := range t.Partitions {
		if i > 0 {
			list = append(list, ',')
		}
		list = appendPartition(list, snap, &t.Partitions[i])
	}
	layout := wire.Begin(nil).Int("generation", int64(t.Generation)).Raw("partitions", append(list, ']')).Close()
	s.push(wire.Open(nil, "metadata").ID(f.ID).Str("topic", t.Name).Str("topic_id", t.ID.String()).
		Int("max_message_bytes", int64(t.Settings.MaxMessageBytes)).Raw("layout", layout).Close())
	return nil
}

func appendPartition(b []byte, snap *cluster.Snapshot, p *cluster.Partition) []byte {
	l := wire.Begin(b).
		Int("id", int64(p.Index)).Int("lo", int64(p.Range.Lo)).Int("hi", int64(p.Range.Hi)).
		Raw("parents", indexes(p.Parents)).Raw("children", indexes(p.Children)).Str("state", string(p.State))
	switch n := snap.Nodes[p.Leader]; {
	case p.Leader == ident.NodeID{}:
		l.Raw("leader", []byte("null"))
	case n == nil:
		l.Str("leader", p.Leader.String())
	default:
		l.Str("leader", n.Name)
	}
	return l.Int("leader_epoch", int64(p.LeaderEpoch)).Close()
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
