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
	"tidewire/internal/boot"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/obs"
	"tidewire/internal/run"
	"tidewire/internal/vfs"
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
	began       time.Time
	ready       atomic.Bool

	store       *storage.Store
	id          ident.NodeID
	http        net.Listener
	coordinator *coordinator.Coordinator
	broker      *broker.Broker
}

// steps is the life of a node: everything below is started from the top and
// stopped from the bottom.
func (n *node) steps() []run.Step {
	return []run.Step{
		// Bound first: a port that is taken is known before anything is opened.
		{Name: "http listener", Start: n.listenHTTP, Stop: n.closeHTTP},
		{Name: "storage", Start: n.openStorage, Run: n.runStorage, Deadline: storageDeadline},
		{Name: "coordinator", Start: n.openCoordinator, Run: n.runCoordinator},
		{Name: "broker", Start: n.openBroker, Run: n.runBroker},
	}
}

// storageDeadline leaves time for the last checkpoint on a slow disk.
const storageDeadline = 15 * time.Second

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

// metaNode is the key under which the data folder keeps the node's id.
const metaNode = "node"

func (n *node) openStorage(context.Context) error {
	store, err := storage.Open(storage.Config{
		Dir: n.cfg.Data, FS: n.disk, OpenFiles: n.files.LogFiles, MinFreeBytes: n.cfg.MinFreeBytes,
		Logger: n.log.With(obs.Component, "storage"), Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.store = store
	return nil
}

func (n *node) runStorage(ctx context.Context) error {
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
	var acted uint64
	text, hasActed := n.store.GetMeta(host.MetaIndex)
	if hasActed {
		if acted, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("the data folder remembers %s %q, which is no number", host.MetaIndex, text)
		}
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

// openBroker begins a new life of the broker and takes what it leads.
func (n *node) openBroker(ctx context.Context) error {
	_, err := n.coordinator.Register(ctx, cluster.Node{
		ID: n.id, Name: n.cfg.Name, Zone: n.cfg.Zone, Roles: n.cfg.Roles, Version: n.build.Version, Storage: n.store.ID(),
		Addresses: cluster.Addresses{
			HTTP: boot.Advertised(n.cfg.AdvertiseHTTP, n.http.Addr().String()),
			Raft: boot.Advertised(n.cfg.AdvertiseRaft, n.coordinator.Addr()),
		},
		State: cluster.Alive, Since: n.began,
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	n.broker = broker.New(broker.Config{
		Node: n.id, Store: n.store, Feed: n.coordinator,
		Logger: n.log.With(obs.Component, "broker"),
	})
	return n.broker.Open(ctx, n.coordinator.Snapshot())
}

func (n *node) runBroker(ctx context.Context) error { return n.broker.Run(ctx) }
