package census

import (
	"context"
	"encoding/json"
	"log/slog"
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
	// figuresTime bounds the wait for other nodes' figures, boundsTime that for
	// where partitions stand, and callTime the wait for one node that is to do
	// something or to list what it has.
	figuresTime = 500 * time.Millisecond
	boundsTime  = time.Second
	callTime    = 2 * time.Second
	// evaluateEvery is how often alerts are evaluated.
	evaluateEvery = time.Second
	// asked is how many nodes are asked at once.
	asked = 16
)

// Peer is another node.
type Peer interface {
	Figures(ctx context.Context) ([]byte, error)
	Connections(ctx context.Context, principal string) ([]byte, error)
	Disconnect(ctx context.Context, connection string) (bool, error)
}

// Config of a Census.
type Config struct {
	Self     ident.NodeID
	Topology topology.Source // required
	Backend  *Backend        // required: this node
	// Local gives the bounds of a partition that this node leads; nil: it has no broker.
	Local func(ident.Partition) (rpc.Bounds, error)
	// Peer finds another node; nil: there is none.
	Peer func(ident.NodeID) (Peer, error)
	// Bounds asks a node for the bounds of partitions that it leads; what it does not
	// serve is left out. nil where Peer is.
	Bounds     func(ctx context.Context, node ident.NodeID, of []ident.Partition) (map[ident.Partition]rpc.Bounds, error)
	Registerer prometheus.Registerer // nil: nothing is counted in public
	Logger     *slog.Logger
}

// Census asks the nodes of a cluster.
type Census struct {
	cfg    Config
	firing *prometheus.GaugeVec

	mu     sync.Mutex
	alerts *alert.Machine
}

// New makes a census. It starts nothing.
func New(cfg Config) *Census {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Census{cfg: cfg, alerts: alert.New(), firing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gateway_alerts_firing",
		Help: "Alerts of the cluster that fire, as this node sees it.",
	}, []string{"alert"})}
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

// others are the nodes but this one that are not known to be dead.
func (c *Census) others(s *cluster.Snapshot) (out []ident.NodeID) {
	if c.cfg.Peer == nil {
		return nil
	}
	for id, n := range s.Nodes {
		if id != c.cfg.Self && n.State != cluster.Dead {
			out = append(out, id)
		}
	}
	return out
}

// Figures of this node and of those that answer.
func (c *Census) Figures(ctx context.Context) map[ident.NodeID]Figures {
	ctx, cancel := context.WithTimeout(ctx, figuresTime)
	defer cancel()
	var mu sync.Mutex
	out := map[ident.NodeID]Figures{}
	c.each(ctx, c.others(c.cfg.Topology.Snapshot()), func(ctx context.Context, id ident.NodeID, p Peer) {
		b, err := p.Figures(ctx)
		f, err := said(id, b, err)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		out[id] = f
	})
	out[c.cfg.Self] = c.Own()
	return out
}

// Bounds of the partitions of some topics, from their leaders. Those whose leader
// does not answer are left out.
func (c *Census) Bounds(ctx context.Context, topics ...*cluster.Topic) map[ident.Partition]rpc.Bounds {
	out := map[ident.Partition]rpc.Bounds{}
	led := map[ident.NodeID][]ident.Partition{}
	for _, t := range topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			ref := t.Ref(p.Index)
			switch {
			case p.Leader == c.cfg.Self && c.cfg.Local != nil:
				if b, err := c.cfg.Local(ref); err == nil {
					out[ref] = b
				}
			case p.Leader != (ident.NodeID{}) && p.Leader != c.cfg.Self:
				led[p.Leader] = append(led[p.Leader], ref)
			}
		}
	}
	if c.cfg.Bounds == nil || len(led) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, boundsTime)
	defer cancel()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asked)
	for id, refs := range led {
		g.Go(func() error {
			got, err := c.cfg.Bounds(ctx, id, refs)
			if err != nil {
				return nil // its partitions are left out
			}
			mu.Lock()
			defer mu.Unlock()
			for ref, b := range got {
				out[ref] = b
			}
			return nil
		})
	}
	_ = g.Wait() // none fails
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

// Run evaluates alerts until ctx ends.
func (c *Census) Run(ctx context.Context) error {
	tick := time.NewTicker(evaluateEvery)
	defer tick.Stop()
	for {
		c.evaluate(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Census) evaluate(ctx context.Context) {
	s := c.cfg.Topology.Snapshot()
	in := alert.Input{Snapshot: s, Reports: map[ident.NodeID]alert.Report{}}
	for id, f := range c.Figures(ctx) {
		in.Reports[id] = alert.Report{Free: f.Disk.Free, Least: f.Disk.Least, Corrupt: f.Corrupt}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alerts.Observe(time.Now(), in)
	for name, n := range c.alerts.Firing() {
		c.firing.WithLabelValues(name).Set(float64(n))
	}
}

// Alerts are those that fire, and those that resolved lately.
func (c *Census) Alerts() []alert.Alert {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alerts.List()
}
