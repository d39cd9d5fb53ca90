package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"tidewire/coordinator/consensus"
	"tidewire/coordinator/state"
	"tidewire/coordinator/watch"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
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
	// MinIndex is the highest index that this node has acted on, as far as it
	// remembers: a store that ends earlier is not the one it was.
	MinIndex   uint64
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Coordinator is the role's facade.
type Coordinator struct {
	cfg     Config
	node    *consensus.Node
	machine *machine
	feed    *watch.Feed
	metrics *metrics
}

// proposeLimit bounds a change that has no earlier deadline of its own.
const proposeLimit = 10 * time.Second

// New does no I/O and starts nothing.
func New(cfg Config) *Coordinator {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	feed := watch.New()
	m := &machine{state: state.New(), feed: feed}
	c := &Coordinator{cfg: cfg, machine: m, feed: feed}
	c.node = consensus.New(consensus.Config{
		Dir: cfg.Dir, Bind: cfg.Bind, Advertise: cfg.Advertise, ID: cfg.Node.ID,
		Found: cfg.Found, MinIndex: cfg.MinIndex,
		Machine: m, Checks: checks(), Logger: cfg.Logger,
	})
	c.metrics = newMetrics(c)
	return c
}

// Open verifies the store, founds the cluster on the first run, and returns once
// this node leads, has applied everything and publishes it. On an error nothing is
// left open and nothing in the folder was changed.
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
	if c.feed.Snapshot().Cluster == (ident.ClusterID{}) {
		id := ident.ClusterID(uuid.New())
		if _, err := c.propose(ctx, &state.Command{Found: &state.Found{Cluster: id}}); err != nil {
			return errors.Join(fmt.Errorf("found the cluster: %w", err), c.node.Close())
		}
	}
	s := c.feed.Snapshot()
	c.cfg.Logger.Info("coordinator leads", "cluster", s.Cluster.String(), "index", s.Index, "topics", len(s.Topics),
		"raft", c.Addr(), "took", time.Since(start).Round(time.Microsecond))
	return nil
}

// Run serves until ctx ends and then closes the store. An error means that the
// store failed: the process must end.
func (c *Coordinator) Run(ctx context.Context) error { return c.node.Run(ctx) }

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

// CreateTopic makes a topic. The same again finds it (false); a setting that
// was given and differs is fault.TopicExists.
func (c *Coordinator) CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	a, err := c.propose(ctx, &state.Command{Create: &state.Create{ID: ident.TopicID(uuid.New()), Spec: spec}})
	if err != nil {
		return nil, false, err
	}
	if a.Topic == nil { // made by an earlier try of this call, and deleted since
		return nil, false, fault.New(fault.TopicNotFound, "topic %s was created and has been deleted again", spec.Name)
	}
	return a.Topic, a.Created, nil
}

// AlterTopic changes the settings that are given.
func (c *Coordinator) AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	a, err := c.propose(ctx, &state.Command{Alter: &state.Alter{Name: name, Patch: patch}})
	if err != nil {
		return nil, err
	}
	if a.Topic == nil {
		return nil, fault.New(fault.TopicNotFound, "topic %s has been deleted", name)
	}
	return a.Topic, nil
}

// DeleteTopic ends a topic's life.
func (c *Coordinator) DeleteTopic(ctx context.Context, name string) error {
	_, err := c.propose(ctx, &state.Command{Delete: &state.Delete{Name: name}})
	return err
}

// Register begins a new life of a node and gives its broker epoch, which is the
// index of the registration. When it returns the feed has reached that index.
func (c *Coordinator) Register(ctx context.Context, n cluster.Node) (ident.BrokerEpoch, error) {
	if n.ID == c.cfg.Node.ID && n.Addresses.Raft == "" {
		n.Addresses.Raft = c.Addr()
	}
	a, err := c.propose(ctx, &state.Command{Register: &state.Register{Node: n}})
	if err != nil {
		return 0, err
	}
	return a.Epoch, nil
}

// Status is where the coordinator stands.
type Status struct {
	Leads  bool
	Leader ident.NodeID // zero: none known
	Term   uint64
	Index  uint64 // of the published state
	Last   uint64 // the last entry of the log, raft's own included
}

// Status is a hint, as soon as it is read.
func (c *Coordinator) Status() Status {
	s := c.node.Status()
	out := Status{Leads: s.Leads, Term: s.Term, Last: s.Last, Index: c.feed.Snapshot().Index}
	if id, err := uuid.Parse(s.Leader); err == nil {
		out.Leader = ident.NodeID(id)
	}
	return out
}

// Verify reads the coordinator's store below a data folder without changing
// it; the node must not be running.
func Verify(dir string, minIndex uint64) (consensus.Report, error) {
	return consensus.Verify(dir, minIndex, checks())
}

func checks() consensus.Checks {
	return consensus.Checks{
		Command: func(b []byte) error {
			_, err := state.Decode(b)
			return err
		},
		Snapshot: func(b []byte) (uint64, error) {
			m, err := state.Restore(b)
			if err != nil {
				return 0, err
			}
			return m.Index(), nil
		},
	}
}
