package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidewire/broker/groups"
	"tidewire/broker/host"
	"tidewire/broker/link"
	"tidewire/broker/mailbox"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
)

// Coordinator is the coordinator as a broker needs it, wherever it is.
type Coordinator interface {
	host.Coordinator
	groups.Coordinator
}

// Network is the way to other brokers.
type Network interface {
	link.Network
	groups.Network
}

// Config of a Broker. What is not marked is required.
type Config struct {
	Node        ident.NodeID
	Store       *storage.Store
	Coordinator Coordinator
	Network     Network
	Lease       func(acted uint64) bool // whether this node is sure to lead what it does by the snapshot of an index
	LeaseFor    time.Duration           // how long a lease is, of every broker
	// Renounce ends a life of this node; nil: nothing is repaired. See host.Config.
	Renounce   func(life cluster.Life, why error)
	Lag        time.Duration // replica_lag; 0: 2s
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: nothing is counted in public
}

// Broker serves the partitions of one node, and the consumer groups on those that it leads.
type Broker struct {
	self   ident.NodeID
	others groups.Network
	host   *host.Host
	groups *groups.Groups
	mail   *mailbox.Mailbox
	show   prometheus.Registerer
}

// New makes a Broker. It opens nothing.
func New(cfg Config) *Broker {
	b := &Broker{self: cfg.Node, others: cfg.Network, mail: mailbox.New(mailbox.Config{Self: cfg.Node, Lease: cfg.Lease}), show: cfg.Registerer}
	b.host = host.New(host.Config{
		Node: cfg.Node, Store: cfg.Store, Coordinator: cfg.Coordinator, Network: cfg.Network, Lease: cfg.Lease, Renounce: cfg.Renounce,
		Applied: func(s *cluster.Snapshot) { b.groups.Apply(s); b.mail.Apply(s) }, Lag: cfg.Lag, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	b.groups = groups.New(groups.Config{
		Self: cfg.Node, Coordinator: cfg.Coordinator, Partitions: b, Network: anywhere{b}, Lease: cfg.Lease, Life: b.host.Links().Self,
		Handover: cfg.LeaseFor, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return b
}

// anywhere appends to partitions of this broker and of others.
type anywhere struct{ *Broker }

func (a anywhere) Append(to ident.NodeID, req rpc.Append, done func(rpc.Appended)) {
	if to == a.self {
		a.Broker.Append(req, done)
		return
	}
	a.others.Append(to, req, done)
}

// Open settles the data folder against a snapshot that knows this node's
// registration, opens every partition and leads what the node should lead.
func (b *Broker) Open(ctx context.Context, s *cluster.Snapshot) error {
	if err := errors.Join(b.host.Register(), b.groups.Register(), b.mail.Register(b.show)); err != nil {
		return err
	}
	if err := b.host.Sweep(s); err != nil {
		return err
	}
	if err := b.host.Apply(ctx, s); err != nil {
		return err
	}
	b.host.NoteRenewed()
	return b.host.Remember()
}

// Run follows the coordinator until ctx ends.
func (b *Broker) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.host.Run(ctx) })
	g.Go(func() error { return b.groups.Run(ctx) })
	g.Go(func() error { return b.mail.Run(ctx) })
	return g.Wait()
}

// Live begins a life of this broker: it follows others, and is followed, under it.
// Streams of a former life end. In its registration certain partitions were declared
// damaged; fault.Fenced says that there are others, and that another life has to begin.
func (b *Broker) Live(life cluster.Life, declared []ident.Partition) error {
	return b.host.Live(life, declared)
}

// ServeFollow carries the stream of a follower until it ends.
func (b *Broker) ServeFollow(ctx context.Context, f rpc.Follow, s link.LeaderStream) error {
	return b.host.Links().Serve(ctx, f, s)
}

// Reached returns once this node has acted on everything that the coordinator
// decided up to a Raft index.
func (b *Broker) Reached(ctx context.Context, index uint64) error { return b.host.Reached(ctx, index) }

// Append takes a batch for a partition this node leads; done is called exactly
// once and must be quick.
func (b *Broker) Append(req rpc.Append, done func(rpc.Appended)) {
	r, err := b.host.Replica(req.Partition)
	if err != nil {
		done(rpc.Appended{Err: err})
		return
	}
	r.Append(req, done)
}

// Read returns whole committed batches.
func (b *Broker) Read(ctx context.Context, req rpc.Read) (rpc.ReadResult, error) {
	r, err := b.host.Replica(req.Partition)
	if err != nil {
		return rpc.ReadResult{}, err
	}
	return r.Read(ctx, req)
}

// Bounds of what can be read of a partition.
func (b *Broker) Bounds(p ident.Partition) (rpc.Bounds, error) {
	r, err := b.host.Replica(p)
	if err != nil {
		return rpc.Bounds{}, err
	}
	return r.Bounds()
}

// OffsetAt finds the first committed offset at or after a time in ms since
// 1970; the high watermark where there is none.
func (b *Broker) OffsetAt(_ context.Context, p ident.Partition, ms int64) (ident.Offset, error) {
	r, err := b.host.Replica(p)
	if err != nil {
		return 0, err
	}
	return r.OffsetAt(ms)
}

// EpochEnd is where a leader epoch ended, the high watermark for the current.
func (b *Broker) EpochEnd(p ident.Partition, e ident.Epoch) (ident.Offset, error) {
	r, err := b.host.Replica(p)
	if err != nil {
		return 0, err
	}
	return r.EpochEnd(e)
}

// Wait returns a channel that is closed once a partition's high watermark is
// above after, or this node no longer serves it.
func (b *Broker) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	r, err := b.host.Replica(p)
	if err != nil {
		return nil, err
	}
	return r.Wait(after)
}

// Loads reports every partition of the node.
func (b *Broker) Loads() []rpc.PartitionLoad {
	replicas := b.host.Replicas()
	out := make([]rpc.PartitionLoad, len(replicas))
	for i, r := range replicas {
		out[i] = r.Load()
	}
	return out
}

// Mended are the partitions whose replica here was damaged within the last minute, and
// is fetched anew.
func (b *Broker) Mended() []ident.Partition { return b.host.Mended() }

// Take leases records to a member of a group, of partitions that this node leads.
func (b *Broker) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	return b.groups.Take(ctx, t)
}

// Lookout is a Take of nothing that waits without a goroutine; nil: it would have to wait
// before it could say anything at all.
func (b *Broker) Lookout(t rpc.Take, poke chan struct{}) rpc.Lookout {
	return b.groups.Lookout(t, poke)
}

// Settle takes in what a member has done with its records.
func (b *Broker) Settle(ctx context.Context, s rpc.Settle) (rpc.Settled, error) {
	return b.groups.Settle(ctx, s)
}

// Standings says how groups stand on partitions that this node leads.
func (b *Broker) Standings(ctx context.Context, s rpc.StandingsOf) ([]rpc.GroupStanding, error) {
	return b.groups.Standings(ctx, s)
}

// Paused are groups that are given nothing new on partitions that this node leads, because
// too many records are not done.
func (b *Broker) Paused() []groups.Pause { return b.groups.Paused() }

// RecordStatus says what became of a record in every group of its topic.
func (b *Broker) RecordStatus(ctx context.Context, s rpc.RecordStatusOf) ([]rpc.RecordStatus, error) {
	return b.groups.RecordStatus(ctx, s)
}

// KeepReply keeps the reply to a request on a partition that this node leads, whose gateway
// is gone: it has said so, or the cluster says it.
func (b *Broker) KeepReply(ctx context.Context, to string, r *inbox.Reply, gone bool) (rpc.Handed, error) {
	return b.mail.KeepReply(ctx, to, r, gone)
}

// KeptReply waits for such a reply.
func (b *Broker) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (rpc.Collected, error) {
	return b.mail.KeptReply(ctx, to, until, wait)
}

// Original finds the record that an idempotency key brought to a partition that this node
// leads, and waits until it is committed.
func (b *Broker) Original(ctx context.Context, s rpc.Sought) (rpc.Original, error) {
	r, err := b.host.Replica(s.Partition)
	if err != nil {
		return rpc.Original{}, err
	}
	return r.Original(ctx, &s.Key)
}
