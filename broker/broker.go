package broker

import (
	"context"

	"tidewire/broker/host"
	"tidewire/broker/link"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Config of a Broker.
type Config = host.Config

// Broker serves the partitions of one node.
type Broker struct{ host *host.Host }

// New makes a Broker. It opens nothing.
func New(cfg Config) *Broker { return &Broker{host: host.New(cfg)} }

// Open settles the data folder against a snapshot that knows this node's
// registration, opens every partition and leads what the node should lead.
func (b *Broker) Open(ctx context.Context, s *cluster.Snapshot) error {
	if err := b.host.Register(); err != nil {
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
func (b *Broker) Run(ctx context.Context) error { return b.host.Run(ctx) }

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
