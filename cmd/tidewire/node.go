package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker"
	"tidewire/broker/host"
	"tidewire/broker/storage"
	"tidewire/coordinator"
	"tidewire/coordinator/consensus"
	"tidewire/gateway"
	"tidewire/gateway/access"
	"tidewire/internal/boot"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/membership"
	"tidewire/internal/obs"
	"tidewire/internal/rpc"
	"tidewire/internal/run"
	"tidewire/internal/vfs"
	"tidewire/web"
)

// node is the parts of a running node. Each step of its life makes one of them;
// a step reads only what earlier steps have made.
type node struct {
	cfg         boot.Config
	disk        vfs.FS
	files       obs.Descriptors
	connections int // most of clients
	build       obs.Build
	log         *slog.Logger
	registry    *prometheus.Registry
	out         io.Writer // for the lines that scripts read
	journal     int64     // size of its files; 0: the storage's own
	began       time.Time
	ready       atomic.Bool
	stopping    atomic.Bool
	registered  chan struct{} // closed once the coordinator knows of this life

	store       *storage.Store
	id          ident.NodeID
	http        net.Listener
	coordinator *coordinator.Coordinator
	membership  *membership.Membership
	rpc         *rpc.Server
	broker      *broker.Broker
	gateway     *gateway.Gateway
}

// steps is the life of a node: everything below is started from the top and
// stopped from the bottom.
func (n *node) steps() []run.Step {
	return []run.Step{
		// Bound first: a port that is taken is known before anything is opened.
		{Name: "http listener", Start: n.listenHTTP, Stop: n.closeHTTP},
		{Name: "coordinator's store", Start: n.checkCoordinator},
		{Name: "space for a start", Start: n.freeReserve},
		{Name: "storage", Start: n.openStorage, Run: n.runStorage, Deadline: storageDeadline},
		{Name: "coordinator", Start: n.openCoordinator, Run: n.runCoordinator},
		{Name: "gossip", Start: n.openGossip, Run: n.runGossip},
		{Name: "rpc", Start: n.openRPC, Run: n.runRPC, Deadline: rpcDeadline},
		{Name: "broker", Start: n.openBroker, Run: n.runBroker},
		{Name: "space for the next start", Run: n.keepReserve},
		// Drain has its own time, and a little more to cut what is left.
		{Name: "gateway", Start: n.openGateway, Run: n.runGateway, Stop: n.drainGateway, Deadline: n.cfg.DrainTimeout + 2*time.Second},
	}
}

const (
	// storageDeadline leaves time for the last checkpoint on a slow disk.
	storageDeadline = 15 * time.Second
	// rpcDeadline is above what calls under way get.
	rpcDeadline = 7 * time.Second
)

// diskFailure marks an end of the process that a new start should wait after.
type diskFailure struct{ err error }

func (e *diskFailure) Error() string { return e.err.Error() }
func (e *diskFailure) Unwrap() error { return e.err }

// announce prints where a listener listens, for scripts and people.
func (n *node) announce(what, address string) {
	fmt.Fprintf(n.out, "listening %s=%s\n", what, address)
	n.log.Info("listening", "listener", what, obs.Address, address)
}

func (n *node) listenHTTP(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", n.cfg.HTTP)
	if err != nil {
		return err
	}
	n.http = l
	n.announce("http", l.Addr().String())
	return nil
}

func (n *node) closeHTTP(context.Context) error {
	if err := n.http.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// checkCoordinator reads the coordinator's store before the storage is opened,
// which recovers and writes: where topics and layouts are damaged the node does
// not start, and leaves all as it is.
func (n *node) checkCoordinator(context.Context) error {
	_, err := verifyStore(n.disk, n.cfg.Data)
	return err
}

// verifyStore reads the coordinator's store and holds it against what the node
// of this folder has acted on.
func verifyStore(disk vfs.FS, dir string) (consensus.Report, error) {
	values, err := storage.ReadMeta(disk, dir)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return consensus.Report{}, err
	}
	acted, err := actedOn(values[host.MetaIndex])
	if err != nil {
		return consensus.Report{}, err
	}
	return coordinator.Verify(dir, acted)
}

// actedOn is the index that a data folder remembers; 0 where it remembers none.
func actedOn(text string) (index uint64, err error) {
	if text == "" {
		return 0, nil
	}
	if index, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, fmt.Errorf("the data folder remembers %s %q, which is no number", host.MetaIndex, text)
	}
	return index, nil
}

// metaNode is the key under which the data folder keeps the node's id.
const metaNode = "node"

func (n *node) openStorage(context.Context) error {
	store, err := storage.Open(storage.Config{
		Dir: n.cfg.Data, FS: n.disk, JournalFileBytes: n.journal, OpenFiles: n.files.LogFiles, MinFreeBytes: n.cfg.MinFreeBytes,
		Logger: n.log.With(obs.Component, "storage"), Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.store = store
	return nil
}

// runStorage lets the coordinator write first: on a full disk the segments would
// take the little space that a start needs.
func (n *node) runStorage(ctx context.Context) error {
	select {
	case <-n.registered:
	case <-ctx.Done():
	}
	if err := n.store.Run(ctx); err != nil {
		return &diskFailure{err}
	}
	return nil
}

// openCoordinator finds out who this node is, and opens its coordinator.
func (n *node) openCoordinator(ctx context.Context) error {
	id, err := n.nodeID()
	if err != nil {
		return err
	}
	n.id = id
	// What this node has acted on before: a coordinator that knows less is not
	// the one it was, and a data folder that has acted founds no new cluster.
	text, hasActed := n.store.GetMeta(host.MetaIndex)
	acted, err := actedOn(text)
	if err != nil {
		return err
	}
	n.coordinator = coordinator.New(coordinator.Config{
		Dir: n.cfg.Data, Bind: n.cfg.Raft, Advertise: n.cfg.AdvertiseRaft,
		Node:     cluster.Node{ID: id, Name: n.cfg.Name},
		Found:    !hasActed && len(n.store.Found()) == 0,
		MinIndex: acted,
		Logger:   n.log.With(obs.Component, "coordinator"), Registerer: n.registry,
	})
	if err := n.coordinator.Open(ctx); err != nil {
		return err
	}
	n.announce("raft", n.coordinator.Addr())
	return nil
}

func (n *node) nodeID() (ident.NodeID, error) {
	if text, ok := n.store.GetMeta(metaNode); ok {
		id, err := uuid.Parse(text)
		if err != nil {
			return ident.NodeID{}, fmt.Errorf("the data folder names node %q, which is no id: %w", text, err)
		}
		return ident.NodeID(id), nil
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return ident.NodeID{}, err
	}
	return ident.NodeID(id), n.store.PutMeta(metaNode, id.String())
}

func (n *node) runCoordinator(ctx context.Context) error {
	if err := n.coordinator.Run(ctx); err != nil {
		return &diskFailure{err}
	}
	return nil
}

func (n *node) openGossip(ctx context.Context) error {
	n.membership = membership.New(membership.Config{
		Name: n.cfg.Name, Bind: n.cfg.Gossip, Advertise: n.cfg.AdvertiseGossip,
		// Two clusters whose nodes meet by mistake do not merge.
		Label:  n.coordinator.Snapshot().Cluster.String(),
		Logger: n.log.With(obs.Component, "gossip"),
	})
	if err := n.membership.Open(ctx); err != nil {
		return err
	}
	n.announce("gossip", n.membership.Addr())
	return nil
}

func (n *node) runGossip(ctx context.Context) error { return n.membership.Run(ctx) }

func (n *node) openRPC(context.Context) error {
	n.rpc = rpc.NewServer(rpc.ServerConfig{Bind: n.cfg.RPC, Advertise: n.cfg.AdvertiseRPC, MostOpen: n.files.Peers, Logger: n.log.With(obs.Component, "rpc")})
	if err := n.rpc.Open(); err != nil {
		return err
	}
	n.announce("rpc", n.rpc.Addr())
	return nil
}

func (n *node) runRPC(ctx context.Context) error { return n.rpc.Run(ctx) }

// openBroker begins a new life of the broker and takes what it leads.
func (n *node) openBroker(ctx context.Context) error {
	_, err := n.coordinator.Register(ctx, cluster.Node{
		ID: n.id, Name: n.cfg.Name, Zone: n.cfg.Zone, Roles: n.cfg.Roles, Version: n.build.Version, Storage: n.store.ID(),
		Addresses: cluster.Addresses{
			HTTP: boot.Advertised(n.cfg.AdvertiseHTTP, n.http.Addr().String()),
			RPC:  n.rpc.Addr(), Raft: n.coordinator.Addr(), Gossip: n.membership.Addr(),
		},
		State: cluster.Alive, Since: n.began,
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	close(n.registered)
	n.broker = broker.New(broker.Config{
		Node: n.id, Store: n.store, Feed: n.coordinator, Logger: n.log.With(obs.Component, "broker"),
	})
	return n.broker.Open(ctx, n.coordinator.Snapshot())
}

func (n *node) runBroker(ctx context.Context) error { return n.broker.Run(ctx) }

func (n *node) openGateway(context.Context) error {
	n.gateway = gateway.New(gateway.Config{
		Listener: n.http, Broker: n.broker, Coordinator: n.coordinator, Disk: dataFolder{n.store, n.broker}, Node: n.id, Name: n.cfg.Name,
		Pages: web.Handler(), NotReady: n.notReady, Access: n.verifier(),
		AllowedOrigins: n.cfg.AllowedOrigins, Advertised: n.cfg.AdvertiseHTTP, MaxConnections: n.connections, MaxConnectionsPerIP: n.cfg.MaxConnectionsPerIP, MaxConnectionRate: n.cfg.MaxConnectionRate, OpenFiles: n.files.Connections,
		MaxSubscriptions: n.cfg.MaxSubscriptions, MaxFrameBytes: n.cfg.MaxFrameBytes, MaxPublishRate: n.cfg.MaxPublishRate, SlowConsumerTimeout: n.cfg.SlowConsumerTimeout,
		Gatherer: n.registry, Registerer: n.registry, Logger: n.log.With(obs.Component, "gateway"),
	})
	return nil
}

// verifier knows the tokens of this node's callers; nil: nobody is asked.
func (n *node) verifier() *access.Verifier {
	if n.cfg.AuthKey == nil {
		return nil
	}
	if len(n.cfg.AuthKey) < boot.WeakKeyBytes {
		n.log.Warn("the secret in auth_key_file is so short that it can be guessed from a token: take a longer one, for example of openssl rand -hex 32",
			obs.Bytes, len(n.cfg.AuthKey), "least", boot.WeakKeyBytes)
	}
	if n.cfg.AuthKeyExposed {
		n.log.Warn("every user of this machine can read auth_key_file, and so can be anybody: take that right away (chmod 600)")
	}
	return &access.Verifier{Key: n.cfg.AuthKey, Issuer: n.cfg.AuthIssuer, Audience: n.cfg.AuthAudience}
}

// dataFolder says how the disk stands.
type dataFolder struct {
	*storage.Store
	broker *broker.Broker
}

// Used is what the logs of this node and their journal hold.
func (d dataFolder) Used() (bytes int64) {
	bytes = d.JournalBytes()
	for _, l := range d.broker.Loads() {
		bytes += l.Bytes
	}
	return bytes
}

func (n *node) runGateway(ctx context.Context) error { return n.gateway.Run(ctx) }

// drainGateway asks clients to leave. Those that do not are cut, which is no
// failure of the node.
func (n *node) drainGateway(ctx context.Context) error {
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

// notReady says why the node cannot serve (yet, or any more).
func (n *node) notReady() []error {
	if n.ready.Load() {
		if n.store.ReadOnly() != nil {
			return []error{fault.New(fault.LeaderUnavailable, "the data folder is damaged: what is kept is served, and nothing new is taken; `tidewire log verify` tells more").Lasts()}
		}
		return nil
	}
	if n.stopping.Load() {
		return []error{fault.New(fault.Draining, "the node is stopping; go to another, or ask again once it has started")}
	}
	return []error{fault.New(fault.Draining, "the node is starting; ask again in a moment")}
}
