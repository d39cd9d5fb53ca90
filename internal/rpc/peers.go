package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// PeersConfig of Peers.
type PeersConfig struct {
	// Self is this node's life, as far as it is known yet; required.
	Self func() cluster.Life
	// Cluster is the cluster that this node belongs to; zero: not known yet. Required.
	Cluster func() ident.ClusterID
	// Address says where a node's calls are listened to, by the snapshot or by gossip;
	// empty: it is not known. It is asked at each call and must be quick. Required.
	Address func(ident.NodeID) string
	Dialer  *Dialer  // required
	Metrics *Metrics // nil: its own, for nobody
	Logger  *slog.Logger
}

// maxPeers bounds the connections to other nodes.
const maxPeers = 1024

var errClosed = errors.New("this node is stopping")

// Peers are the connections to other nodes, one each: opened when something is first
// asked of a node, and closed once it has another address, or is forgotten.
type Peers struct {
	cfg    PeersConfig
	ctx    context.Context // of all that runs on connections; it ends with Close
	cancel context.CancelCauseFunc
	loops  sync.WaitGroup
	lines  *lines

	mu     sync.RWMutex
	nodes  map[ident.NodeID]*Peer
	at     map[string]*Peer // by address, whoever is there
	closed bool
}

// NewPeers does no I/O.
func NewPeers(cfg PeersConfig) *Peers {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	p := &Peers{cfg: cfg, nodes: map[ident.NodeID]*Peer{}, at: map[string]*Peer{}}
	p.lines = newLines(func(f *framed) {
		p.cfg.Logger.Info("a node is silent: its stream is closed", "address", f.conn.RemoteAddr().String())
	})
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// Node gives the connection to a node of the cluster.
func (p *Peers) Node(id ident.NodeID) (*Peer, error) {
	address, err := p.address(id)
	if err != nil {
		return nil, err
	}
	p.mu.RLock()
	peer := p.nodes[id]
	p.mu.RUnlock()
	if peer != nil && peer.address == address && peer.ctx.Err() == nil {
		return peer, nil
	}
	return p.open(id, address)
}

// At gives a connection to whoever listens at an address: the way to a cluster that
// this node has not joined yet. It closes when it was not used for a while.
func (p *Peers) At(address string) (*Peer, error) {
	p.mu.RLock()
	peer := p.at[address]
	p.mu.RUnlock()
	if peer != nil && peer.ctx.Err() == nil {
		return peer, nil
	}
	return p.open(ident.NodeID{}, address)
}

func (p *Peers) address(id ident.NodeID) (string, error) {
	if a := p.cfg.Address(id); a != "" {
		return a, nil
	}
	return "", fault.New(fault.LeaderUnavailable, "node %s is not known (yet)", id)
}

func (p *Peers) open(id ident.NodeID, address string) (*Peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fault.New(fault.LeaderUnavailable, "%w", errClosed)
	}
	old := p.at[address]
	if id != (ident.NodeID{}) {
		old = p.nodes[id]
	}
	switch {
	case old != nil && old.address == address && old.ctx.Err() == nil:
		return old, nil // somebody else was quicker
	case old != nil:
		old.cancel(errors.New("the node has another address"))
	case len(p.nodes)+len(p.at) >= maxPeers:
		return nil, fault.New(fault.LeaderUnavailable, "this node has connections to %d others already", maxPeers)
	}
	peer, err := newPeer(p, id, address)
	if err != nil {
		return nil, err
	}
	if id == (ident.NodeID{}) {
		p.at[address] = peer
	} else {
		p.nodes[id] = peer
	}
	p.loops.Go(func() { peer.run(); p.forget(peer) })
	return peer, nil
}

func (p *Peers) forget(peer *Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[peer.node] == peer {
		delete(p.nodes, peer.node)
	}
	if p.at[peer.address] == peer {
		delete(p.at, peer.address)
	}
}

// current says whether a peer is still where the cluster says it is.
func (p *Peers) current(peer *Peer) bool {
	if peer.node == (ident.NodeID{}) {
		return true
	}
	address, err := p.address(peer.node)
	return err == nil && address == peer.address
}

// Close ends all calls and connections, and returns once nothing of them runs.
func (p *Peers) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel(errClosed)
	p.lines.close()
	p.loops.Wait()
}
