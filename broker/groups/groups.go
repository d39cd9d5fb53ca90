package groups

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Coordinator is the coordinator as groups need it, wherever it is.
type Coordinator interface {
	// Propose asks for a change. An error is a fault: coordinator-unavailable where
	// nobody knows what became of it.
	Propose(ctx context.Context, c cluster.Change) (cluster.Answer, error)
	// Progress reads what groups have done on a partition, as of an index or a later one.
	Progress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error)
}

// Partitions are the logs of this node, as its broker serves them.
type Partitions interface {
	Bounds(p ident.Partition) (rpc.Bounds, error)
	Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error)
	Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error)
	// Reached returns once this node, groups and all, has acted on everything up to an index.
	Reached(ctx context.Context, index uint64) error
}

// Network appends to partitions of any broker.
type Network interface {
	// Append gives a batch to the broker of a node. done is called exactly once, perhaps
	// before it returns.
	Append(to ident.NodeID, req rpc.Append, done func(rpc.Appended))
}

// Config of Groups. What is not marked is required.
type Config struct {
	Self        ident.NodeID
	Coordinator Coordinator
	Partitions  Partitions
	Network     Network
	Lease       func(acted uint64) bool // whether this node is sure to lead what it does by the snapshot of an index
	Life        func() cluster.Life     // of this node
	// Handover is how long a leader of the past may believe that it still leads: as long
	// as a broker's lease is.
	Handover   time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: nothing is counted in public
}

// Groups are the consumer groups on the partitions that this node leads.
type Groups struct {
	cfg      Config
	metrics  *metrics
	commits  gatherer
	releases releases
	timers   schedule[*unit]
	letters  undertaker
	tasks    tasks
	paused   pauses
	turn     atomic.Uint32 // of partitions, from Take to Take

	mu       sync.Mutex        // before the one of a post, and that before the one of a unit
	snapshot *cluster.Snapshot // the newest that was acted on
	posts    map[ident.Partition]*post
	names    map[ident.TopicID]names
}

// New makes Groups. It starts nothing.
func New(cfg Config) *Groups {
	g := &Groups{cfg: cfg, snapshot: &cluster.Snapshot{}, posts: map[ident.Partition]*post{}, names: map[ident.TopicID]names{}}
	g.metrics = newMetrics(g)
	g.commits = newGatherer(g)
	g.releases = newReleases(g)
	g.timers = newSchedule[*unit]()
	g.letters = newUndertaker(g)
	g.tasks.wake = make(chan struct{}, 1)
	return g
}

// Register shows what there is to count.
func (g *Groups) Register() error {
	if g.cfg.Registerer == nil {
		return nil
	}
	return g.cfg.Registerer.Register(g.metrics)
}

// Run works until ctx ends.
func (g *Groups) Run(ctx context.Context) error {
	run, ctx := errgroup.WithContext(ctx)
	run.Go(func() error { return g.commits.run(ctx) })
	run.Go(func() error { return g.releases.run(ctx) })
	run.Go(func() error { return g.timers.run(ctx, (*unit).tick) })
	run.Go(func() error { return g.letters.run(ctx) })
	run.Go(func() error { return g.tasks.run(ctx) })
	err := run.Wait()
	g.end()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// end answers everybody who waits.
func (g *Groups) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ref, p := range g.posts {
		p.end(fault.New(fault.LeaderUnavailable, "the node is stopping"))
		delete(g.posts, ref)
	}
}

func (g *Groups) known() *cluster.Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot
}

// hearLimit is how long a caller waits that knows more than this node.
const hearLimit = 5 * time.Second

// reached waits until what a caller knows was acted on here.
func (g *Groups) reached(ctx context.Context, index uint64) error {
	if g.known().Index >= index {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hearLimit)
	defer cancel()
	if err := g.cfg.Partitions.Reached(ctx, index); err != nil {
		return fault.New(fault.LeaderUnavailable, "this node has yet to hear what the caller knows: %w", err)
	}
	return nil
}

// post finds a partition that is led here.
func (g *Groups) post(ref ident.Partition) (*post, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.posts[ref]; p != nil {
		return p, nil
	}
	return nil, notLed(ref)
}

func notLed(ref ident.Partition) error {
	return fault.New(fault.LeaderUnavailable, "this node does not lead partition %d of that topic (any more)", ref.Index)
}

// leased refuses what only a leader may do that is sure to be one.
func (g *Groups) leased() error {
	if g.cfg.Lease(g.known().Index) {
		return nil
	}
	return fault.New(fault.LeaderUnavailable, "this node's lease of a broker is over, or it has yet to hear what was decided since: it is not sure to lead")
}
