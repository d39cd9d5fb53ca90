package census

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidewire/gateway/alert"
	"tidewire/gateway/connection"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

const (
	// callTime bounds the wait for one node that is to do something or to list what
	// it has.
	callTime = 2 * time.Second
	// asked is how many nodes are asked at once.
	asked = 16
)

// Peer is another node.
type Peer interface {
	Figures(ctx context.Context) ([]byte, error)
	Connections(ctx context.Context, principal string) ([]byte, error)
	Disconnect(ctx context.Context, connection string) (bool, error)
}

// Changes is the cluster's change feed.
type Changes interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Config of a Census.
type Config struct {
	Self     ident.NodeID
	Topology topology.Source // required
	Changes  Changes         // nil: what changes is noticed when the time comes
	// Age is how long ago a coordinator was heard that hears the one that leads; nil:
	// this node follows none that could fall silent.
	Age     func() time.Duration
	Backend *Backend // required: this node
	// Local gives the bounds of a partition that this node leads; nil: it has no broker.
	Local func(ident.Partition) (rpc.Bounds, error)
	// Peer finds another node; nil: there is none.
	Peer func(ident.NodeID) (Peer, error)
	// Bounds asks a node for the bounds of partitions that it leads. nil where Peer is.
	Bounds     func(ctx context.Context, node ident.NodeID, of []ident.Partition) (map[ident.Partition]rpc.BoundsAnswer, error)
	Registerer prometheus.Registerer // nil: nothing is counted in public
	Logger     *slog.Logger
}

// Census asks the nodes of a cluster.
type Census struct {
	cfg    Config
	firing *prometheus.GaugeVec

	mu     sync.Mutex
	alerts *alert.Machine
	round  *round // the latest for whoever wants all figures
	turn   int    // whom the next look begins with
	// What came of the latest look at each node.
	reports map[ident.NodeID]report
	silent  map[ident.NodeID]bool
}

// New makes a census. It starts nothing.
func New(cfg Config) *Census {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Age == nil {
		cfg.Age = func() time.Duration { return 0 }
	}
	c := &Census{
		cfg: cfg, alerts: alert.New(), reports: map[ident.NodeID]report{}, silent: map[ident.NodeID]bool{},
		firing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gateway_alerts_firing",
			Help: "Alerts of the cluster that fire, as this node sees it.",
		}, []string{"alert"}),
	}
	for _, name := range alert.Names() {
		c.firing.WithLabelValues(name)
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(c.firing)
	}
	return c
}

// Self is this node.
func (c *Census) Self() ident.NodeID { return c.cfg.Self }

// Own figures.
func (c *Census) Own() Figures { return c.cfg.Backend.Own() }

// each does something for every other node that may answer, some at once.
func (c *Census) each(ctx context.Context, nodes []ident.NodeID, f func(ctx context.Context, id ident.NodeID, p Peer)) {
	var g errgroup.Group
	g.SetLimit(asked)
	for _, id := range nodes {
		p, err := c.cfg.Peer(id)
		if err != nil {
			continue
		}
		g.Go(func() error { f(ctx, id, p); return nil })
	}
	_ = g.Wait() // none fails
}

// others are the nodes but this one that are not known to be dead, in an order that
// stays.
func (c *Census) others(s *cluster.Snapshot) (out []ident.NodeID) {
	if c.cfg.Peer == nil {
		return nil
	}
	for id, n := range s.Nodes {
		if id != c.cfg.Self && n.State != cluster.Dead {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b ident.NodeID) int { return slices.Compare(a[:], b[:]) })
	return out
}

// Connections of a node; of one principal, or of all.
func (c *Census) Connections(ctx context.Context, node ident.NodeID, principal *string) ([]connection.Info, error) {
	if node == c.cfg.Self {
		return c.cfg.Backend.Clients.List(principal), nil
	}
	p, err := c.peer(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	of := ""
	if principal != nil {
		of = *principal
	}
	b, err := p.Connections(ctx, of)
	if err != nil {
		return nil, err
	}
	var list []connection.Info
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fault.New(fault.Internal, "connections of node %s: %w", node, err)
	}
	if principal != nil && of == "" { // it listed all
		var own []connection.Info
		for _, i := range list {
			if i.Principal == "" {
				own = append(own, i)
			}
		}
		list = own
	}
	return list, nil
}

func (c *Census) peer(node ident.NodeID) (Peer, error) {
	if c.cfg.Peer == nil {
		return nil, fault.New(fault.LeaderUnavailable, "node %s cannot be asked", node)
	}
	return c.cfg.Peer(node)
}

// Dismiss closes a connection wherever it is; false: no node that answered has it.
func (c *Census) Dismiss(ctx context.Context, id string) bool {
	if c.cfg.Backend.Clients.Dismiss(id) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var mu sync.Mutex
	found := false
	c.each(ctx, c.others(c.cfg.Topology.Snapshot()), func(ctx context.Context, _ ident.NodeID, p Peer) {
		if ok, err := p.Disconnect(ctx, id); err == nil && ok {
			mu.Lock()
			defer mu.Unlock()
			found = true
		}
	})
	return found
}
