package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidewire/broker"
	"tidewire/broker/storage"
	"tidewire/gateway"
	"tidewire/gateway/access"
	"tidewire/gateway/alert"
	"tidewire/gateway/census"
	"tidewire/internal/boot"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/obs"
	"tidewire/web"
)

// verifier knows the tokens of this node's callers; nil: nobody is asked.
func (n *node) verifier() *access.Verifier {
	if !n.cfg.Asks() {
		return nil
	}
	if secret := n.cfg.AuthKey; secret != nil && len(secret) < boot.WeakKeyBytes {
		n.log.Warn("the secret in auth_key_file is so short that it can be guessed from a token: take a longer one, for example of openssl rand -hex 32",
			obs.Bytes, len(n.cfg.AuthKey), "least", boot.WeakKeyBytes)
	}
	if n.cfg.AuthKeyExposed {
		n.log.Warn("every user of this machine can read auth_key_file, and so can be anybody: take that right away (chmod 600)")
	}
	return &access.Verifier{Key: n.cfg.AuthKey, Public: n.cfg.AuthPublic, Issuer: n.cfg.AuthIssuer, Audience: n.cfg.AuthAudience}
}

// dataFolder says how the disk stands.
type dataFolder struct {
	*storage.Store
	broker *broker.Broker // nil: this node has none
	count  *tally
}

// tally is what was found last: thousands of logs are not added up all the time.
type tally struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
}

// countEvery is how old the sum of the logs may be.
const countEvery = 5 * time.Second

// Used is what the logs of this node and their journal hold.
func (d dataFolder) Used() (bytes int64) {
	bytes = d.JournalBytes()
	if d.broker == nil {
		return bytes
	}
	d.count.mu.Lock()
	defer d.count.mu.Unlock()
	if d.count.at.IsZero() || time.Since(d.count.at) >= countEvery {
		d.count.at, d.count.bytes = time.Now(), 0
		for _, l := range d.broker.Loads() {
			d.count.bytes += l.Bytes
		}
	}
	return bytes + d.count.bytes
}

// harmed are the partitions whose replica here is damaged, or was a moment ago.
func (n *node) harmed() []ident.Partition {
	all := n.store.Damaged()
	if n.broker == nil {
		return all
	}
	for _, p := range n.broker.Mended() {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// paused are the groups that get nothing new of partitions that this node leads.
func (n *node) paused() (all []alert.Pause) {
	if n.broker != nil {
		for _, p := range n.broker.Paused() {
			all = append(all, alert.Pause(p))
		}
	}
	return all
}

func (n *node) openGateway(context.Context) error {
	if n.http == nil {
		n.rpc.Node(gateway.BareBackend(n.about())) // it has none
		return nil
	}
	cfg := gateway.Config{
		Listener: n.http, Coordinator: n.director, About: n.about(), FeedAge: n.director.Age, Node: n.id, Name: n.cfg.Name,
		Peer: func(id ident.NodeID) (gateway.Peer, error) { return n.peers.Node(id) }, Propose: n.director.Propose, Touch: n.director.Touch,
		Life:  func() (ident.BrokerEpoch, bool) { return n.registration.Counts() },
		Pages: web.Handler(), NotReady: n.notReady, Access: n.verifier(), KeysURL: n.cfg.AuthJWKSURL,
		AllowedOrigins: n.cfg.AllowedOrigins, Advertised: n.cfg.AdvertiseHTTP, MaxConnections: n.connections, MaxConnectionsPerIP: n.cfg.MaxConnectionsPerIP, MaxConnectionRate: n.cfg.MaxConnectionRate, OpenFiles: n.files.Connections,
		MaxSubscriptions: n.cfg.MaxSubscriptions, MaxFrameBytes: n.cfg.MaxFrameBytes, MaxPublishRate: n.cfg.MaxPublishRate, SlowConsumerTimeout: n.cfg.SlowConsumerTimeout,
		Gatherer: n.registry, Registerer: n.registry, Logger: n.log.With(obs.Component, "gateway"),
	}
	if n.broker != nil {
		cfg.Broker = n.broker
	}
	n.gateway = gateway.New(cfg)
	n.rpc.Node(n.gateway.Backend())
	return n.meanwhile.HandOver() // before the node says that it is ready
}

// about gives what the node says of itself to others, whether it has clients or not.
func (n *node) about() func() census.Figures {
	disk, began := dataFolder{n.store, n.broker, &tally{}}, time.Now()
	return func() census.Figures {
		return census.Figures{
			ID: n.id, Started: began, Disk: census.Disk{Used: disk.Used(), Free: disk.Free(), Least: n.cfg.MinFreeBytes},
			CoordinatorLeader: n.leader(), Suspects: n.suspects(), Corrupt: n.harmed(), Paused: n.paused(), FeedAge: n.director.Age(),
		}
	}
}

func (n *node) runGateway(ctx context.Context) error {
	if n.gateway == nil {
		<-ctx.Done()
		return nil
	}
	return n.gateway.Run(ctx)
}

// leader is the node that leads the coordinators, as far as this one knows.
func (n *node) leader() ident.NodeID {
	if n.coordinator != nil {
		return n.coordinator.Status().Leader
	}
	if lease, ok := n.registration.Lease(); ok {
		return lease.Leader
	}
	return ident.NodeID{}
}

// suspects are the nodes whose lives the leading coordinator doubts.
func (n *node) suspects() []ident.NodeID {
	lease, _ := n.registration.Lease()
	return lease.Suspects
}

// handOverLimit bounds how long a stop waits until others lead what this node led.
const handOverLimit = 3 * time.Second

// leave hands over what this node leads, so that writes go on elsewhere, and asks its
// clients to go.
func (n *node) leave(ctx context.Context) error {
	n.handOver(ctx)
	return n.drainGateway(ctx)
}

// handOver lets others lead. A node that nobody can take over from keeps what it has.
func (n *node) handOver(ctx context.Context) {
	if n.broker == nil || !n.hasOthers() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	begun := time.Now()
	if _, err := n.director.Propose(ctx, cluster.Change{Drain: &cluster.Drain{Node: n.id}}); err != nil {
		n.log.Warn("the cluster was not told that this node stops; others take over when it is gone", obs.Err, err)
		return
	}
	for s := n.director.Snapshot(); ctx.Err() == nil; {
		if led := n.handable(s); led == 0 {
			n.log.Info("others lead what this node led", obs.Took, time.Since(begun).Round(time.Millisecond))
			return
		}
		next, err := n.director.Next(ctx, s.Index)
		if err != nil {
			return
		}
		s = next
	}
}

// hasOthers says whether another broker is alive.
func (n *node) hasOthers() bool {
	for id, other := range n.director.Snapshot().Nodes {
		if id != n.id && other.Serves() && other.Broker() {
			return true
		}
	}
	return false
}

// handable counts the partitions that this node leads and that another could.
func (n *node) handable(s *cluster.Snapshot) (count int) {
	for _, t := range s.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader == n.id && slices.ContainsFunc(p.ISR, func(id ident.NodeID) bool {
				other := s.Nodes[id]
				return id != n.id && other != nil && other.State == cluster.Alive
			}) {
				count++
			}
		}
	}
	return count
}

// drainGateway asks clients to leave. Those that do not are cut, which is no
// failure of the node.
func (n *node) drainGateway(ctx context.Context) error {
	if n.gateway == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	begun := time.Now()
	err := n.gateway.Drain(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		n.log.Warn("clients were still there when the time to drain was over", obs.Took, time.Since(begun), obs.Err, err)
		return nil
	}
	n.log.Info("drained", obs.Took, time.Since(begun).Round(time.Millisecond))
	return err
}
