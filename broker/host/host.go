package host

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker/link"
	"tidewire/broker/replica"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Coordinator is the coordinator as a broker needs it, wherever it is.
type Coordinator interface {
	// Next blocks until there is a snapshot newer than after, and gives the latest.
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
	// Propose asks for a change. An error is a fault: coordinator-unavailable where
	// nobody knows what became of it.
	Propose(ctx context.Context, c cluster.Change) (cluster.Answer, error)
	Report(ctx context.Context, s cluster.Suspicion) error
}

// Config of a Host. What is not marked is required.
type Config struct {
	Node        ident.NodeID
	Store       *storage.Store
	Coordinator Coordinator
	Network     link.Network // to other brokers
	// Lease says whether this node is sure to lead what it does by the snapshot of an index.
	Lease func(acted uint64) bool
	// Renounce ends a life of this node, so that the next one begins: in its
	// registration the coordinator hears what is damaged. nil: nothing is repaired.
	Renounce   func(life cluster.Life, why error)
	Applied    func(*cluster.Snapshot) // told of each snapshot once the replicas know it, before Reached says so; nil: nobody is
	Lag        time.Duration           // replica_lag; 0: 2s
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: nothing is counted in public
}

// held is a replica and what it was last told.
type held struct {
	replica  *replica.Replica
	log      *storage.Log
	topic    string
	leader   ident.NodeID
	modified uint64 // of the topic, when it was last looked at
}

// Host holds the replicas of this node.
type Host struct {
	cfg       Config
	links     *link.Links
	proposals proposals
	clamps    chan struct{} // has one entry when there may be something to clamp
	metrics   *metrics

	work     sync.Mutex // held by whoever changes which replicas there are
	mu       sync.RWMutex
	replicas map[ident.Partition]*held
	life     cluster.Life                  // of this node; zero: none yet
	declared map[ident.Partition]bool      // damaged, as the coordinator heard when that life began
	mended   map[ident.Partition]time.Time // when; see Mended
	all      atomic.Pointer[[]*replica.Replica]
	snapshot *cluster.Snapshot // the newest that came
	index    atomic.Uint64     // of the one that was acted on
	acted    chan struct{}     // closed when that moves; nil: nobody waits
}

// New makes a Host. It opens nothing.
func New(cfg Config) *Host {
	cfg.Lag = cmp.Or(cfg.Lag, 2*time.Second)
	h := &Host{cfg: cfg, replicas: map[ident.Partition]*held{}, snapshot: &cluster.Snapshot{}, proposals: newProposals(), clamps: make(chan struct{}, 1)}
	h.metrics = newMetrics(h)
	h.links = link.New(link.Config{Node: h, Network: cfg.Network, Coordinator: cfg.Coordinator, Journal: cfg.Store, Now: time.Now, Logger: cfg.Logger})
	cfg.Store.Hear(h.links)
	return h
}

// Register shows what there is to count.
func (h *Host) Register() error {
	if h.cfg.Registerer == nil {
		return nil
	}
	return h.cfg.Registerer.Register(h.metrics)
}

// Links are the streams to and from other brokers.
func (h *Host) Links() *link.Links { return h.links }

// Replica finds a partition of this node.
func (h *Host) Replica(p ident.Partition) (*replica.Replica, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if r, ok := h.replicas[p]; ok {
		return r.replica, nil
	}
	return nil, fault.New(fault.LeaderUnavailable, "this node does not hold partition %d of that topic (yet)", p.Index)
}

// Replicas lists what the node holds. Nobody changes the list.
func (h *Host) Replicas() []*replica.Replica {
	if all := h.all.Load(); all != nil {
		return *all
	}
	return nil
}

// enlist makes the list anew.
func (h *Host) enlist() {
	all := h.which(func(*held) bool { return true })
	h.all.Store(&all)
}

// Followed lists what a leader leads of it.
func (h *Host) Followed(leader ident.NodeID) []*replica.Replica {
	return h.which(func(r *held) bool { return r.leader == leader })
}

func (h *Host) which(wanted func(*held) bool) []*replica.Replica {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*replica.Replica, 0, len(h.replicas))
	for _, r := range h.replicas {
		if wanted(r) {
			out = append(out, r.replica)
		}
	}
	return out
}

// Life is the latest life of a node, as far as this one has acted.
func (h *Host) Life(n ident.NodeID) (cluster.Life, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	node := h.snapshot.Nodes[n]
	if node == nil {
		return cluster.Life{}, false
	}
	return node.Life(), true
}

// alive says whether a life is the one that counts.
func (h *Host) alive(l cluster.Life) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	node := h.snapshot.Nodes[l.Node]
	return node != nil && node.BrokerEpoch == l.Epoch && node.Serves()
}
