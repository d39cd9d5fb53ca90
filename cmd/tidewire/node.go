package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker"
	"tidewire/broker/storage"
	"tidewire/coordinator"
	"tidewire/gateway"
	"tidewire/internal/boot"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/membership"
	"tidewire/internal/obs"
	"tidewire/internal/registration"
	"tidewire/internal/rpc"
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
	journal     int64     // size of its files; 0: the storage's own
	began       time.Time
	ready       atomic.Bool
	stopping    atomic.Bool
	registered  chan struct{} // closed once the coordinator knows of this life

	throughLinks func(*rpc.Dialer) // of tests

	start        start             // what it is doing
	http         net.Listener      // nil: this node has no gateway
	meanwhile    *gateway.Starting // answers on http until there is a gateway; nil as http
	coordinates  bool              // the coordinator's store was there at the start
	store        *storage.Store
	renews       bool // the data folder is to be begun anew; of the registration alone
	id           ident.NodeID
	dialer       *rpc.Dialer
	peers        *rpc.Peers
	addresses    addresses
	rpc          *rpc.Server
	membership   *membership.Membership
	coordinator  *coordinator.Coordinator // nil: the role is elsewhere
	director     director                 // the coordinator, here or elsewhere
	registration *registration.Registration
	broker       *broker.Broker // nil: this node has none
	gateway      *gateway.Gateway
}

// steps is the life of a node: everything below is started from the top and
// stopped from the bottom.
func (n *node) steps() []run.Step {
	return []run.Step{
		// Bound first: a port that is taken is known before anything is opened.
		{Name: "http listener", Start: n.listenHTTP, Run: n.runHTTP, Stop: n.closeHTTP},
		{Name: "coordinator's store", Start: n.checkCoordinator},
		{Name: "space for a start", Start: n.freeReserve},
		{Name: "storage", Start: n.openStorage, Run: n.runStorage, Deadline: storageDeadline},
		{Name: "rpc", Start: n.openRPC, Run: n.runRPC, Deadline: rpcDeadline},
		{Name: "gossip", Start: n.openGossip, Run: n.runGossip},
		{Name: "coordinator", Start: n.openCoordinator, Run: n.runCoordinator},
		{Name: "cluster", Start: n.findCluster},
		{Name: "registration", Start: n.prepare, Run: n.runRegistration},
		{Name: "broker", Start: n.awaitLife, Run: n.runBroker},
		{Name: "space for the next start", Run: n.keepReserve},
		// Drain has its own time, and a little more to cut what is left.
		{Name: "gateway", Start: n.openGateway, Run: n.runGateway, Stop: n.leave, Deadline: handOverLimit + n.cfg.DrainTimeout + 2*time.Second},
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
	if !n.cfg.Has("gateway") {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", n.cfg.HTTP)
	if err != nil {
		return err
	}
	n.http = l
	n.answerMeanwhile(l.(*net.TCPListener)) // tcp gives no other
	n.announce("http", l.Addr().String())
	return nil
}

func (n *node) closeHTTP(context.Context) error {
	if n.http == nil {
		return nil
	}
	if err := n.http.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// heardNow is how long ago a coordinator was heard at most where one still is: a lease
// runs out later than that.
const heardNow = time.Second

// notReady says why the node cannot serve (yet, or any more).
func (n *node) notReady() []error {
	if n.ready.Load() {
		var reasons []error
		if n.store.ReadOnly() != nil {
			reasons = append(reasons, fault.New(fault.LeaderUnavailable, "the data folder is damaged: what is kept is served, and nothing new is taken; `tidewire log verify` tells more").Lasts())
		}
		// Where no coordinator is heard there is no lease, and clients are none the worse.
		if lease, holds := n.registration.Lease(); n.broker != nil && lease.For > 0 && !holds && n.director.Age() < heardNow {
			reasons = append(reasons, fault.New(fault.LeaderUnavailable, "this node's broker has no lease, though a coordinator is heard: others take over what it leads; look at its network and its load").After(time.Second))
		}
		return reasons
	}
	if n.stopping.Load() {
		return []error{isStopping()}
	}
	return []error{fault.New(fault.Draining, "the node is starting; ask again in a moment")}
}

func isStopping() error {
	return fault.New(fault.Draining, "the node is stopping; go to another, or ask again once it has started")
}
