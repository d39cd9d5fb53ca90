package router_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/gateway/router"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	here = ident.NodeID{1}
	a    = ident.NodeID{0xa}
	b    = ident.NodeID{0xb}
)

// world is a cluster of one topic with one partition: what the coordinator says
// of it, and a broker a node.
type world struct {
	*feed.Feed
	nodes map[ident.NodeID]*node
	ref   ident.Partition
}

// node is another node's broker, or this one's.
type node struct {
	*memlog.Broker
	gone   atomic.Bool // its calls are refused
	silent atomic.Bool // its calls are never answered
	calls  atomic.Int64
	epoch  atomic.Uint32 // of the last Append
}

func newWorld() *world {
	w := &world{Feed: feed.New(), nodes: map[ident.NodeID]*node{}}
	for _, id := range []ident.NodeID{here, a, b} {
		n := &node{Broker: memlog.New()}
		t := n.Topic("orders", 1) // the same id everywhere
		w.ref = t.Ref(0)
		w.nodes[id] = n
	}
	s := w.nodes[a].Snapshot()
	w.Publish(&cluster.Snapshot{Index: 1, Topics: s.Topics, ByID: s.ByID})
	return w
}

// lead tells of another leader, and of who is in sync.
func (w *world) lead(leader ident.NodeID, epoch ident.Epoch, isr ...ident.NodeID) {
	now := w.Snapshot()
	t := *now.ByID[w.ref.Topic]
	t.Modified = now.Index + 1
	t.Partitions = append([]cluster.Partition(nil), t.Partitions...)
	part := &t.Partitions[0]
	part.Leader, part.LeaderEpoch, part.ISR, part.Replicas = leader, epoch, isr, isr
	next := &cluster.Snapshot{Index: t.Modified, Topics: maps.Clone(now.Topics), ByID: maps.Clone(now.ByID)}
	next.Topics[t.Name], next.ByID[t.ID] = &t, &t
	w.Publish(next)
}

func (w *world) topic() *cluster.Topic { return w.Snapshot().ByID[w.ref.Topic] }

// keep appends a batch to the logs of some nodes.
func (w *world) keep(key string, ids ...ident.NodeID) {
	for _, id := range ids {
		w.nodes[id].Broker.Append(w.ref, key)
	}
}

// Broker finds another node.
func (w *world) Broker(id ident.NodeID) (router.Peer, error) {
	n := w.nodes[id]
	if n.gone.Load() {
		return nil, fault.New(fault.LeaderUnavailable, "connection refused")
	}
	return peer{node: n}, nil
}

// peer is a node as others call it.
type peer struct {
	*node
	router.Groups
}

func (n *node) Append(req rpc.Append, done func(rpc.Appended)) {
	n.epoch.Store(uint32(req.Epoch))
	done(rpc.Appended{Records: make([]rpc.RecordResult, req.Batch.Header().Entries)})
}

// answer says whether the node answers calls, once it does not keep silent.
func (n *node) answer(ctx context.Context) error {
	n.calls.Add(1)
	if n.silent.Load() {
		<-ctx.Done()
		return fault.New(fault.UnknownOutcome, "broken")
	}
	if n.gone.Load() {
		return fault.New(fault.LeaderUnavailable, "connection refused")
	}
	return nil
}

func (p peer) Read(ctx context.Context, q rpc.Read, wait time.Duration) (rpc.ReadResult, error) {
	if err := p.answer(ctx); err != nil {
		return rpc.ReadResult{}, err
	}
	res, err := p.node.Read(ctx, q)
	if err == nil && len(res.Batches) == 0 && wait > 0 {
		if err := p.wait(ctx, q.Partition, q.Offset, wait); err != nil {
			return res, err
		}
		return p.node.Read(ctx, q)
	}
	return res, err
}

func (p peer) wait(ctx context.Context, ref ident.Partition, after ident.Offset, wait time.Duration) error {
	more, err := p.Wait(ref, after)
	if err != nil {
		return err
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-more:
	case <-limit.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (p peer) Bounds(ctx context.Context, ref ident.Partition, after ident.Offset, wait time.Duration) (rpc.Bounds, error) {
	if err := p.answer(ctx); err != nil {
		return rpc.Bounds{}, err
	}
	if wait > 0 {
		if err := p.wait(ctx, ref, after, wait); err != nil {
			return rpc.Bounds{}, err
		}
	}
	return p.node.Bounds(ctx, ref)
}

func (p peer) OffsetAt(ctx context.Context, ref ident.Partition, ms int64) (ident.Offset, error) {
	if err := p.answer(ctx); err != nil {
		return 0, err
	}
	return p.node.OffsetAt(ctx, ref, ms)
}

func (p peer) EpochEnd(ctx context.Context, ref ident.Partition, e ident.Epoch) (ident.Offset, error) {
	if err := p.answer(ctx); err != nil {
		return 0, err
	}
	return p.node.EpochEnd(ctx, ref, e)
}

// local is a node as itself.
type local struct {
	*node
	router.Groups
}

func (l local) Bounds(ref ident.Partition) (rpc.Bounds, error) {
	return l.node.Bounds(context.Background(), ref)
}

func (l local) EpochEnd(ref ident.Partition, e ident.Epoch) (ident.Offset, error) {
	return l.node.EpochEnd(context.Background(), ref, e)
}

// run makes and runs the router of a node; one with a broker is the node here.
func (w *world) run(t testing.TB, broker bool) *router.Router {
	t.Helper()
	cfg := router.Config{Self: here, Topology: w, Changes: w, Peer: w.Broker}
	if broker {
		cfg.Local = local{node: w.nodes[here]}
	}
	r := router.New(cfg)
	activity.Start(t, r.Run)
	return r
}
