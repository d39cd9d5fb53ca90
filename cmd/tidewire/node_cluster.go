package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tidewire/broker/host"
	"tidewire/broker/storage"
	"tidewire/coordinator"
	"tidewire/coordinator/balance"
	"tidewire/gateway"
	"tidewire/internal/boot"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/ident"
	"tidewire/internal/membership"
	"tidewire/internal/obs"
	"tidewire/internal/rpc"
)

// director is the coordinator as this node reaches it: its own, or another node's.
type director interface {
	gateway.Coordinator
	Propose(ctx context.Context, c cluster.Change) (cluster.Answer, error)
	Touch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error)
	Progress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error)
	Renew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error)
	Report(ctx context.Context, s cluster.Suspicion) error
	// Age is how long ago this node heard a coordinator that hears the one that leads.
	Age() time.Duration
}

// openRPC opens the listener of calls between nodes, and what makes such calls. What
// is asked before the part that answers is there is refused for the moment.
func (n *node) openRPC(context.Context) error {
	n.dialer = &rpc.Dialer{Self: n.id}
	n.throughLinks(n.dialer)
	counted := rpc.NewMetrics(n.registry)
	n.rpc = rpc.NewServer(rpc.ServerConfig{
		Bind: n.cfg.RPC, Advertise: n.cfg.AdvertiseRPC, MostOpen: n.files.Peers, Metrics: counted,
		Self: n.life, Cluster: n.cluster, Logger: n.log.With(obs.Component, "rpc"),
	})
	n.peers = rpc.NewPeers(rpc.PeersConfig{
		Self: n.life, Cluster: n.cluster, Address: n.addresses.of, Dialer: n.dialer, Metrics: counted, Logger: n.log.With(obs.Component, "rpc"),
	})
	if err := n.rpc.Open(); err != nil {
		return err
	}
	n.announce("rpc", n.rpc.Addr())
	return nil
}

func (n *node) runRPC(ctx context.Context) error {
	defer n.peers.Close()
	return n.rpc.Run(ctx)
}

// life is this node's life; before it has one, who it is.
func (n *node) life() cluster.Life {
	if r := n.addresses.registration.Load(); r != nil {
		if life := r.Life(); life.Epoch != 0 {
			return life
		}
	}
	return cluster.Life{Node: n.id}
}

// cluster is the one that this node belongs to; zero: none yet.
func (n *node) cluster() ident.ClusterID {
	if s := n.addresses.known(); s != nil && s.Cluster != (ident.ClusterID{}) {
		return s.Cluster
	}
	return n.formerCluster()
}

// formerCluster is the one that the data folder belongs to.
func (n *node) formerCluster() ident.ClusterID {
	text, _ := n.store.GetMeta(metaCluster)
	id, err := uuid.Parse(text)
	if err != nil {
		return ident.ClusterID{}
	}
	return ident.ClusterID(id)
}

func (n *node) openGossip(ctx context.Context) error {
	self := membership.Node{ID: n.id, Name: n.cfg.Name, Roles: n.cfg.Roles, Cluster: n.formerCluster(), Addresses: cluster.Addresses{RPC: n.rpc.Addr()}}
	if n.http != nil {
		self.Addresses.HTTP = boot.Advertised(n.cfg.AdvertiseHTTP, n.http.Addr().String())
	}
	n.membership = membership.New(membership.Config{
		Self: self, Bind: n.cfg.Gossip, Advertise: n.cfg.AdvertiseGossip, Seeds: n.cfg.Join, Peers: knownPeers{n.store},
		Dial: n.dialer.DialContext,
		Datagram: func(address string, packet []byte) (string, []byte) {
			return n.dialer.Datagram(rpc.KindGossip, address, packet)
		},
		Logger: n.log.With(obs.Component, "gossip"),
	})
	if err := n.membership.Open(ctx); err != nil {
		return err
	}
	n.addresses.membership.Store(n.membership)
	n.announce("gossip", n.membership.Addr())
	return nil
}

func (n *node) runGossip(ctx context.Context) error { return n.membership.Run(ctx) }

// openCoordinator opens this node's coordinator, or the way to the others'. A node
// without a store of one founds a cluster or joins one; which of both may take until
// the others are there.
func (n *node) openCoordinator(ctx context.Context) error {
	if !n.cfg.Has("coordinator") {
		remote := control.New(control.Config{Client: rpc.Coordinators{Peers: n.peers}, Known: n.coordinators, Logger: n.log.With(obs.Component, "control")})
		n.direct(control.Director{Remote: remote})
		return nil
	}
	// What this node has acted on before: a coordinator that knows less is not
	// the one it was, and a data folder that has acted founds no new cluster.
	text, hasActed := n.store.GetMeta(host.MetaIndex)
	acted, err := actedOn(text)
	if err != nil {
		return err
	}
	unused := !hasActed && len(n.store.Found()) == 0
	join := false
	if !n.coordinates && (len(n.cfg.Join) > 0 || n.cfg.BootstrapExpect != 1) {
		if join, err = n.settleFounding(ctx); err != nil {
			return fmt.Errorf("wait for other coordinators: %w", err)
		}
	}
	n.coordinator = coordinator.New(coordinator.Config{
		Dir: n.cfg.Data, Bind: n.cfg.Raft, Advertise: n.cfg.AdvertiseRaft,
		Node: cluster.Node{ID: n.id, Name: n.cfg.Name}, Found: unused, Join: join, Cluster: n.formerCluster(), MinIndex: acted,
		Logger: n.log.With(obs.Component, "coordinator"), Registerer: n.registry,
		Dial: n.dialer.DialContext, Locate: n.locate, Peers: rpc.Coordinators{Peers: n.peers}, Others: n.coordinators, Probe: n.peers.Probe, Lease: n.cfg.BrokerLease,
		Balance: balance.Config{ReplicaLag: n.cfg.ReplicaLag, ReplaceAfter: n.cfg.ReplicaReplace},
	})
	if err := n.coordinator.Open(ctx); err != nil {
		return err
	}
	n.direct(n.coordinator)
	n.rpc.Coordinator(n.coordinator)
	n.announce("raft", n.coordinator.Addr())
	return n.membership.Update(func(self *membership.Node) { self.Addresses.Raft = n.coordinator.Addr() })
}

// settleFounding returns once this node is to found a cluster, or can join one. What it
// opens then is for good, so a cluster that is only known from hearsay is waited for: it
// may come back, or never have been meant for this node.
func (n *node) settleFounding(ctx context.Context) (join bool, err error) {
	n.start.awaits(n.foundingWaits)
	for told := false; ; told = true {
		d, err := n.membership.Settle(ctx, n.cfg.BootstrapExpect)
		if err != nil || d.Do != membership.Join || n.clusterAnswers(ctx) {
			return d.Do == membership.Join, err
		}
		if !told {
			n.log.Info("this node waits to join a cluster of which no coordinator answers that hears a leader", "why", d.Why)
		}
		select {
		case <-time.After(joinTick):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

const (
	// joinTick is how often a cluster that does not answer is asked again, and
	// joinAnswer how long each of its coordinators may take.
	joinTick   = 200 * time.Millisecond
	joinAnswer = time.Second
)

// clusterAnswers says whether some coordinator of a cluster serves its change feed,
// which one that hears no leader does not.
func (n *node) clusterAnswers(ctx context.Context) bool {
	for _, other := range n.membership.View().Nodes {
		if !other.Coordinator() || other.ID == n.id || other.Cluster == (ident.ClusterID{}) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, joinAnswer)
		err := rpc.Coordinators{Peers: n.peers}.Watch(limited, other.ID, 0, func(cluster.Message) error { return errServes })
		cancel()
		if errors.Is(err, errServes) {
			return true
		}
	}
	return false
}

// errServes ends a watch of which the first message is all that counts.
var errServes = errors.New("it serves its change feed")

func (n *node) direct(d director) {
	n.director = d
	n.addresses.director.Store(&d)
	n.watchFeed()
}

func (n *node) runCoordinator(ctx context.Context) error {
	if n.coordinator == nil {
		return n.director.(control.Director).Run(ctx)
	}
	if err := n.coordinator.Run(ctx); err != nil {
		return &diskFailure{err}
	}
	return nil
}

// findCluster returns once this node follows a cluster. One that founds it among
// several waits for them: what it would take alone, its death would take with it.
func (n *node) findCluster(ctx context.Context) error {
	n.start.awaits(n.clusterWaits)
	s := n.director.Snapshot()
	for s.Cluster == (ident.ClusterID{}) {
		next, err := n.director.Next(ctx, s.Index)
		if err != nil {
			return fmt.Errorf("wait for the cluster: %w", err)
		}
		s = next
	}
	if former := n.formerCluster(); former != (ident.ClusterID{}) && former != s.Cluster {
		return fmt.Errorf("the data folder belongs to cluster %s, and the coordinators are those of %s: give this node an empty folder, or join the cluster it was in", former, s.Cluster)
	}
	founded := n.formerCluster() == (ident.ClusterID{})
	if err := n.store.PutMeta(metaCluster, s.Cluster.String()); err != nil {
		return err
	}
	err := n.membership.Update(func(self *membership.Node) { self.Cluster, self.Empty = s.Cluster, false })
	if err != nil || !founded {
		return err
	}
	return n.awaitFounders(ctx) // who have to hear of the cluster first
}

// awaitFounders returns once as many coordinators have a vote as were to found the
// cluster, or once that is over: one that has shrunk since waits for nobody. Before that
// its decisions are on fewer disks than was asked for.
func (n *node) awaitFounders(ctx context.Context) error {
	if n.coordinator == nil {
		return nil
	}
	n.start.awaits(func() string {
		return fmt.Sprintf("it waits until %d coordinators have a vote, and %d have one, %s", n.cfg.BootstrapExpect, len(n.coordinator.Status().Voters), n.seesCoordinators())
	})
	tick := time.NewTicker(founderTick)
	defer tick.Stop()
	for len(n.coordinator.Status().Voters) < n.cfg.BootstrapExpect && !begun(n.coordinator.Snapshot()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %d coordinators have a vote: %w", n.cfg.BootstrapExpect, context.Cause(ctx))
		}
	}
	return nil
}

// begun says that a coordinator serves, or has served: those that found a cluster do so
// only when all of them have a vote.
func begun(s *cluster.Snapshot) bool {
	for _, other := range s.Nodes {
		if other.Activated != 0 && slices.Contains(other.Roles, "coordinator") {
			return true
		}
	}
	return false
}

// founderTick is how often it is looked for votes.
const founderTick = 20 * time.Millisecond

// coordinators are those that this node has heard of, itself left out.
func (n *node) coordinators() (ids []ident.NodeID) {
	for _, other := range n.membership.View().Nodes {
		if other.Coordinator() && other.ID != n.id {
			ids = append(ids, other.ID)
		}
	}
	if s := n.addresses.known(); s != nil {
		for id, other := range s.Nodes {
			if id != n.id && slices.Contains(other.Roles, "coordinator") && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// locate finds where a coordinator's raft is now.
func (n *node) locate(id ident.NodeID) (string, bool) {
	other, ok := n.membership.Find(id)
	return other.Addresses.Raft, ok && other.Addresses.Raft != ""
}

// knownPeers keeps the gossip addresses of others in the data folder.
type knownPeers struct{ *storage.Store }

const metaPeers = "gossip_peers"

func (s knownPeers) Load() []string {
	text, _ := s.GetMeta(metaPeers)
	return strings.Fields(text)
}

func (s knownPeers) Save(addresses []string) error {
	return s.PutMeta(metaPeers, strings.Join(addresses, " "))
}

var errNoBroker = errors.New("this node has no broker")
