package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidewire/gateway/access"
	"tidewire/gateway/ask"
	"tidewire/gateway/budget"
	"tidewire/gateway/catchup"
	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/groups"
	"tidewire/gateway/guard"
	"tidewire/gateway/httpapi"
	"tidewire/gateway/origin"
	"tidewire/gateway/publish"
	"tidewire/gateway/pulse"
	"tidewire/gateway/quota"
	"tidewire/gateway/router"
	"tidewire/gateway/seats"
	"tidewire/gateway/session"
	"tidewire/gateway/stream"
	"tidewire/gateway/turn"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Broker leads partitions and reads them.
type Broker interface {
	router.Local
	ask.Mail
	// Reached returns once the broker has acted on everything that was decided
	// up to a Raft index.
	Reached(ctx context.Context, index uint64) error
}

// Coordinator decides about topics and says what the cluster is.
type Coordinator interface {
	CreateTopic(ctx context.Context, spec cluster.TopicSpec) (t *cluster.Topic, created bool, err error)
	AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error)
	DeleteTopic(ctx context.Context, name string) error
	catchup.Coordinator
}

// Config of a Gateway. A zero field means its default.
type Config struct {
	Listener net.Listener // required; the gateway closes it
	Broker   Broker       // nil: this node has none
	// Peer finds another node by what the snapshot says of it; nil: there is none.
	Peer func(ident.NodeID) (Peer, error)
	// Propose asks the coordinator for a change; nil: this node cannot.
	Propose func(ctx context.Context, change cluster.Change) (cluster.Answer, error)
	// Touch tells the leading coordinator of signs of life of groups' members; nil: this
	// node cannot.
	Touch func(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error)
	// About is what the node says of itself beside its clients. Required.
	About func() census.Figures
	// FeedAge is how long ago a coordinator was heard that hears the one that leads;
	// nil: this node follows none that could fall silent.
	FeedAge func() time.Duration
	// Life is the life of the node at hand, 0 if none counts, and whether it has a lease of
	// it; nil: the node is alone.
	Life        func() (life ident.BrokerEpoch, held bool)
	Coordinator Coordinator  // required
	Node        ident.NodeID // required
	Name        string       // of the node
	Pages       http.Handler // at /; nil: none
	// NotReady gives the reasons why the node cannot serve beside the gateway's
	// own; nil: none.
	NotReady func() []error

	// Access knows the tokens; nil: nobody is asked who they are.
	Access              *access.Verifier
	KeysURL             string // where more public keys of tokens are published; "": nowhere
	AllowedOrigins      []string
	Advertised          string // the address that clients dial, or empty
	MaxConnections      int    // WebSockets and event streams; 0: no bound
	MaxConnectionsPerIP int    // 0: no bound
	MaxConnectionRate   int    // a second; 0: no bound
	// OpenFiles is how many connections of any kind the process has open files
	// for; 0: no bound.
	OpenFiles           int
	MaxSubscriptions    int // a connection
	MaxFrameBytes       int
	MaxPublishRate      int // records a second of a client; 0: no bound
	SlowConsumerTimeout time.Duration

	Gatherer   prometheus.Gatherer
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Gateway serves clients.
type Gateway struct {
	cfg       Config
	present   *catchup.CatchUp
	router    *router.Router
	publisher *publish.Publisher
	pulse     *pulse.Pulse
	groups    *groups.Groups
	ask       *ask.Ask
	hub       *deliver.Hub
	streams   *stream.Set
	connected *connection.Set
	door      *guard.Guard
	crew      *turn.Crew
	sessions  *session.Manager
	api       *httpapi.API
	server    *http.Server
	ceiling   *ceiling
	figures   *figures
	census    *census.Census
	backend   *Backend
	departure *departure
	slack     *slack
}

// New makes a Gateway. It starts nothing.
func New(cfg Config) *Gateway {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	g := &Gateway{cfg: cfg}
	routes := router.Config{Self: cfg.Node, Topology: cfg.Coordinator, Changes: cfg.Coordinator, Peer: routed(cfg.Peer)}
	var local func(ident.Partition) (rpc.Bounds, error)
	if cfg.Broker != nil {
		routes.Local, local = cfg.Broker, cfg.Broker.Bounds
	}
	g.router = router.New(routes)
	g.present = catchup.New(cfg.Coordinator, cfg.Registerer)
	g.publisher = publish.New(publish.Config{Topology: g.present, Leader: g.router, Changes: cfg.Coordinator, Registerer: cfg.Registerer})
	g.pulse = pulse.New(told(cfg.Touch))
	g.groups = groups.New(groups.Config{
		Self: cfg.Node, Topology: g.present, Changes: cfg.Coordinator, Places: g.router, Pulse: g.pulse, Registerer: cfg.Registerer,
		Broker: func(id ident.NodeID) (groups.Broker, error) { return g.router.Groups(id) },
		Propose: func(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
			return g.control().decide(ctx, change)
		},
	})
	g.ask = ask.New(ask.Config{
		Self: cfg.Node, Topology: g.present, Changes: cfg.Coordinator, Publisher: g.publisher, Reader: g.router,
		Life: cfg.Life, Peer: askable(cfg.Peer), Mail: mail(cfg), Registerer: cfg.Registerer,
	})
	delivered := deliver.NewMetrics(cfg.Registerer)
	origins := origin.New(cfg.AllowedOrigins, cfg.Advertised)
	held := budget.New(budget.DefaultBytes)
	g.hub = deliver.New(deliver.Config{Source: g.router, Topology: cfg.Coordinator, Held: held, Logger: cfg.Logger, Metrics: delivered})
	seated := seats.New(cfg.MaxConnections, cfg.MaxConnectionsPerIP, cfg.MaxConnectionRate, delivered.Refused)
	g.connected = connection.New()
	rate := quota.New(cfg.MaxPublishRate)
	g.door = guard.New(guard.Config{Verifier: cfg.Access, KeysURL: cfg.KeysURL, Registerer: cfg.Registerer, Logger: cfg.Logger})
	g.crew = turn.NewCrew()
	g.streams = stream.New(stream.Config{
		Crew: g.crew, Hub: g.hub, Seats: seated, Connections: g.connected, SlowConsumerTimeout: cfg.SlowConsumerTimeout,
		Logger: cfg.Logger, Deliveries: delivered, Registerer: cfg.Registerer,
	})
	g.sessions = session.New(session.Config{
		Crew: g.crew, Hub: g.hub, Topology: g.present, Publisher: g.publisher, Groups: g.groups, Ask: g.ask, Held: held, Node: cfg.Name, Seats: seated, Guard: g.door, Connections: g.connected, Quota: rate,
		Origins: origins, MaxSubscriptions: cfg.MaxSubscriptions, MaxFrameBytes: cfg.MaxFrameBytes,
		SlowConsumerTimeout: cfg.SlowConsumerTimeout, Logger: cfg.Logger, Deliveries: delivered, Registerer: cfg.Registerer,
	})
	g.slack = newSlack(seated.Moves)
	g.figures = newFigures(cfg.About, g.publisher, delivered, seated)
	g.departure = &departure{
		self: cfg.Node, next: cfg.Coordinator.Next, wake: make(chan struct{}, 1),
		send: []func(context.Context){g.streams.Depart, g.sessions.Depart},
	}
	g.backend = &Backend{&census.Backend{Own: g.figures.Figures, Clients: g.connected}, g.ask}
	g.census = census.New(census.Config{
		Self: cfg.Node, Topology: cfg.Coordinator, Changes: cfg.Coordinator, Age: cfg.FeedAge, Backend: g.backend.Backend, Local: local,
		Peer: counted(cfg.Peer), Bounds: bounds(cfg.Peer), Registerer: cfg.Registerer,
	})
	g.api = httpapi.New(httpapi.Config{
		Topology: g.present, Control: g.control(), Groups: g.groups, Ask: g.ask, Publisher: g.publisher, Reader: g.hub, Streams: g.streams,
		Nodes: g.census, NotReady: g.notReady, Warnings: g.warnings, WebSocket: g.sessions, Pages: cfg.Pages, Origins: origins,
		Guard: g.door, Quota: rate,
		Held: held, Gatherer: cfg.Gatherer, Registerer: cfg.Registerer, Logger: cfg.Logger,
	})
	g.server = httpapi.NewServer(g.api)
	refused := delivered.Refused.WithLabelValues("open_files")
	g.ceiling = newCeiling(cfg.Listener, cfg.OpenFiles, func() int { return g.sessions.Open() + g.streams.Taken() }, refused.Inc)
	g.server.ConnState = g.ceiling.state
	return g
}

// control decides through the coordinator.
func (g *Gateway) control() control {
	return control{g.cfg.Coordinator, g.cfg.Broker, g.router, g.census.Age, g.cfg.Propose}
}

// Run serves until ctx ends; connections that are left then are cut. Where
// there is time, Drain comes first.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.door.Run(ctx) })
	group.Go(func() error { return g.present.Run(ctx) })
	group.Go(func() error { return g.hub.Run(ctx) })
	group.Go(func() error { return g.publisher.Run(ctx) })
	group.Go(func() error { return g.router.Run(ctx) })
	group.Go(func() error { return g.pulse.Run(ctx) })
	group.Go(func() error { return g.groups.Run(ctx) })
	group.Go(func() error { return g.ask.Run(ctx) })
	working, rest := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return g.crew.Run(working) })
	group.Go(func() error {
		defer rest() // whoever writes has had its last turn
		var writers errgroup.Group
		writers.Go(func() error { return g.sessions.Run(ctx) })
		writers.Go(func() error { return g.streams.Run(ctx) })
		return writers.Wait()
	})
	group.Go(func() error { return g.connected.Run(ctx) })
	group.Go(func() error { return g.figures.run(ctx) })
	group.Go(func() error { return g.census.Run(ctx) })
	group.Go(func() error { return g.departure.run(ctx) })
	group.Go(func() error { return g.departure.follow(ctx) })
	group.Go(func() error { return g.slack.run(ctx) })
	group.Go(func() error {
		if err := g.server.Serve(httpapi.Patient(g.ceiling)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return g.server.Close()
	})
	return group.Wait()
}

// Backend answers other nodes that ask about this one.
func (g *Gateway) Backend() *Backend { return g.backend }

// Drain ends the service in order: no new connections; streams and WebSockets
// are told where they stand and when to come back, polls are answered, publishes
// under way end. What is left when ctx ends is cut by the end of Run.
func (g *Gateway) Drain(ctx context.Context) error {
	g.api.Drain()
	var group errgroup.Group // one that fails does not cut the other short
	group.Go(func() error { return g.streams.Drain(ctx) })
	group.Go(func() error { return g.sessions.Drain(ctx) })
	group.Go(func() error { g.ask.Settle(ctx, lastReplies); return nil })
	err := group.Wait()
	err = errors.Join(err, g.server.Shutdown(ctx))
	return errors.Join(err, g.publisher.Drain(ctx))
}
