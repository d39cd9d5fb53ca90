package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidewire/coordinator/balance"
	"tidewire/coordinator/consensus"
	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
)

// Config tunes a coordinator. A zero field means its default.
type Config struct {
	Dir       string       // required: the data folder; the coordinator's own is raft/ in it
	Bind      string       // raft's host:port; port 0 picks one
	Advertise string       // what other coordinators dial; default: the address listened on
	Node      cluster.Node // this node; its ID is required and stays for as long as Dir lives
	// Found says that this may be the cluster's first run: the data folder holds
	// no broker's data. Without it a missing raft folder is refused, because a new
	// cluster would not know the topics that the data belongs to.
	Found bool
	// Join says that this node never founds a cluster: it asks others to take it in.
	// Where Cluster is known, Join makes Found needless: no other cluster takes it.
	Join    bool
	Cluster ident.ClusterID // the one that the data folder belongs to; zero: none yet
	// MinIndex is the highest index that this node has acted on, as far as it
	// remembers: a store that ends earlier is not the one it was.
	MinIndex   uint64
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	// What follows is for clusters of several coordinators. Without it there is this one.

	Dial    consensus.Dial                                      // of raft's connections; nil: plain TCP
	Locate  func(ident.NodeID) (string, bool)                   // where a coordinator's raft is now; nil: as the configuration says
	Peers   Peers                                               // nil: no other is ever called
	Others  func() []ident.NodeID                               // the coordinators that can be asked to take this one in; nil: none
	Probe   func(context.Context, cluster.Node) cluster.Outcome // asks a node whether it lives, for as long as ctx; nil: nobody is probed, nobody is declared dead, and nothing is planned by itself
	Lease   time.Duration                                       // of a broker's life; 2 s
	Balance balance.Config                                      // of what is planned by itself
}

// Coordinator is the role's facade.
type Coordinator struct {
	cfg     Config
	began   time.Time
	node    *consensus.Node
	machine *machine
	feed    *feed.Feed
	metrics *metrics
	known   atomic.Pointer[ident.ClusterID] // the cluster, from before the feed tells it
	rules   atomic.Pointer[rule]            // while this node leads; nil otherwise
	joins   chan struct{}                   // holds a token while one is taken in
	caught  map[ident.NodeID]time.Time      // since when those that come have caught up; guarded by joins
}

// proposeLimit bounds a change that has no earlier deadline of its own.
const proposeLimit = 10 * time.Second

// New does no I/O and starts nothing.
func New(cfg Config) *Coordinator {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Others == nil {
		cfg.Others = func() []ident.NodeID { return nil }
	}
	cfg.Lease = cmp.Or(cfg.Lease, 2*time.Second)
	latest := feed.New()
	c := &Coordinator{cfg: cfg, began: time.Now(), machine: newMachine(latest), feed: latest, joins: make(chan struct{}, 1), caught: map[ident.NodeID]time.Time{}}
	c.learn(cfg.Cluster)
	rejoins := cfg.Join && cfg.Cluster != ident.ClusterID{}
	minIndex := cfg.MinIndex
	c.node = consensus.New(consensus.Config{
		Dir: cfg.Dir, Bind: cfg.Bind, Advertise: cfg.Advertise, ID: cfg.Node.ID,
		Found: cfg.Found || rejoins, Join: cfg.Join, MinIndex: minIndex,
		Machine: c.machine, Checks: checks(c.learn), Logger: cfg.Logger,
		Cluster: c.cluster, Dial: cfg.Dial, Locate: cfg.Locate,
	})
	c.metrics = newMetrics(c)
	return c
}

// Open verifies the store, founds the cluster on the first run, and starts. A node
// that coordinates alone leads, has applied everything and publishes it when Open
// returns; the feed of another one fills when it hears its leader. On an error
// nothing is left open and nothing in the folder was changed.
func (c *Coordinator) Open(ctx context.Context) error {
	if c.cfg.Node.ID == (ident.NodeID{}) || c.cfg.Dir == "" || c.cfg.Bind == "" {
		return errors.New("coordinator config: Dir, Bind and Node.ID are required")
	}
	if err := c.metrics.register(c.cfg.Registerer); err != nil {
		return fmt.Errorf("coordinator metrics: %w", err)
	}
	start := time.Now()
	if err := c.node.Open(ctx); err != nil {
		return err
	}
	c.machine.publish()
	status := c.node.Status()
	if status.Leads && c.feed.Snapshot().Cluster == (ident.ClusterID{}) {
		id := ident.ClusterID(uuid.New())
		if _, err := c.commit(ctx, &state.Command{Found: &state.Found{Cluster: id}}); err != nil {
			return errors.Join(fmt.Errorf("found the cluster: %w", err), c.node.Close())
		}
	}
	s := c.feed.Snapshot()
	c.cfg.Logger.Info("coordinator opened", "leads", status.Leads, "cluster", c.cluster().String(), "index", s.Index, "topics", len(s.Topics),
		"raft", c.Addr(), "took", time.Since(start).Round(time.Microsecond))
	return nil
}

// Run serves until ctx ends, then hands over what this node leads and closes the
// store. An error means that the store failed, or that the cluster has taken this
// coordinator out: the process must end.
func (c *Coordinator) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.node.Run(ctx) })
	g.Go(func() error { return c.machine.run(ctx) })
	g.Go(func() error { return c.announce(ctx) })
	g.Go(func() error { return c.govern(ctx) })
	g.Go(func() error { return c.enter(ctx) })
	return g.Wait()
}

// announce lets the other coordinators know of each change that a snapshot shows here, as
// soon as one does, where this one leads: whoever follows them hears of it then.
func (c *Coordinator) announce(ctx context.Context) error {
	for s := c.feed.Snapshot(); ; {
		c.node.Announce(s.Index)
		next, err := c.feed.Next(ctx, s.Index)
		if err != nil {
			return nil // the time is over: a feed does not fail
		}
		s = next
	}
}

// Close is for a coordinator that was opened and is never Run.
func (c *Coordinator) Close() error { return c.node.Close() }

// Addr is raft's address as others dial it, with the port that was picked.
func (c *Coordinator) Addr() string { return c.node.Addr() }

// Snapshot is the latest state; never nil.
func (c *Coordinator) Snapshot() *cluster.Snapshot { return c.feed.Snapshot() }

// Next waits until there is a snapshot newer than the index and gives the
// latest. Nothing queues up for a slow reader.
func (c *Coordinator) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	return c.feed.Next(ctx, after)
}

// cluster is the one this node belongs to; zero: not known yet.
func (c *Coordinator) cluster() ident.ClusterID {
	if id := c.feed.Snapshot().Cluster; id != (ident.ClusterID{}) {
		return id
	}
	if id := c.known.Load(); id != nil {
		return *id
	}
	return ident.ClusterID{}
}

func (c *Coordinator) learn(id ident.ClusterID) {
	if id != (ident.ClusterID{}) {
		c.known.Store(&id)
	}
}

// Age is how long ago this one heard the coordinator that leads; 0: it leads. Before the
// first word it counts from New.
func (c *Coordinator) Age() time.Duration { return min(c.node.Heard(), time.Since(c.began)) }

// Status is where the coordinator stands.
type Status struct {
	Leads    bool
	Leader   ident.NodeID // zero: none known
	Term     uint64
	Index    uint64         // of the published state
	Last     uint64         // the last entry of the log, raft's own included
	Heard    time.Duration  // how long ago this one heard the leader; 0: it leads
	Voters   []ident.NodeID // the coordinators that count for the majority
	Suspects []ident.NodeID // nodes whose lives the leader doubts; known at the leader alone
}

// Status is a hint, as soon as it is read.
func (c *Coordinator) Status() Status {
	s := c.node.Status()
	out := Status{Leads: s.Leads, Leader: c.leader(), Term: s.Term, Last: s.Last, Index: c.feed.Snapshot().Index, Heard: c.node.Heard()}
	for _, m := range c.node.Members() {
		if m.Voter {
			out.Voters = append(out.Voters, m.ID)
		}
	}
	if r := c.rules.Load(); r != nil {
		out.Suspects = r.suspects()
	}
	return out
}

// leader is who leads, as raft knows it; zero: nobody.
func (c *Coordinator) leader() ident.NodeID {
	id, err := uuid.Parse(c.node.Status().Leader)
	if err != nil {
		return ident.NodeID{}
	}
	return ident.NodeID(id)
}

// Verify reads the coordinator's store below a data folder without changing
// it; the node must not be running.
func Verify(dir string, minIndex uint64) (consensus.Report, error) {
	return consensus.Verify(dir, minIndex, checks(func(ident.ClusterID) {}))
}

// checks look into commands and snapshots. They tell of the cluster, so that a node
// knows it before it has heard what of its log is committed: the entry that founds
// it is the first one, and comes to others only when it is.
func checks(founded func(ident.ClusterID)) consensus.Checks {
	return consensus.Checks{
		Command: func(b []byte) error {
			c, err := state.Decode(b)
			if err == nil && c.Found != nil {
				founded(c.Found.Cluster)
			}
			return err
		},
		Snapshot: func(b []byte) (uint64, error) {
			m, err := state.Restore(b)
			if err != nil {
				return 0, err
			}
			founded(m.Snapshot().Cluster)
			return m.Index(), nil
		},
	}
}
