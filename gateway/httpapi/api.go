package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/alert"
	"tidewire/gateway/budget"
	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/guard"
	"tidewire/gateway/origin"
	"tidewire/gateway/publish"
	"tidewire/gateway/quota"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Controller decides about topics. Its errors are faults that name the field
// and what is allowed.
type Controller interface {
	// CreateTopic is idempotent: created is false where the topic was there
	// already with all that the spec names.
	CreateTopic(ctx context.Context, spec cluster.TopicSpec) (t *cluster.Topic, created bool, err error)
	AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error)
	DeleteTopic(ctx context.Context, name string) error
	// PurgeTopic takes everything below an offset out of the partitions that before names;
	// nil: out of all of them, up to their high watermarks of now. It gives where they
	// begin then.
	PurgeTopic(ctx context.Context, t *cluster.Topic, before map[ident.Index]ident.Offset) ([]cluster.Position, error)
	// Drain takes the leadership of everything off a node, or ends that.
	Drain(ctx context.Context, node ident.NodeID, cancel bool) error
}

// Publisher sends one record on its way. It calls done exactly once, perhaps
// before it returns; it has copied the record by then, and blocks at most for
// the record's timeout.
type Publisher interface {
	Publish(req publish.Request, done func(publish.Result))
}

// Reader reads topics for one answer or for a stream; *deliver.Hub is one.
type Reader interface {
	// Resolve finds the offsets a request means. A cursor that cannot be used
	// gives a start with a gap.
	Resolve(ctx context.Context, q deliver.Request) (deliver.Start, error)
	// Poll answers at once, or waits up to q.Wait for the first message.
	Poll(ctx context.Context, q deliver.PollRequest) (deliver.PollResult, error)
}

// Streams answers a request with server-sent events for as long as its client
// stays; *stream.Set does. An error means that nothing was written.
type Streams interface {
	// Admit says why no further stream begins at the moment.
	Admit() error
	Serve(w http.ResponseWriter, r *http.Request, start deliver.Start) error
}

// Nodes is what this node knows of itself, and of the others by asking them;
// *census.Census is one.
type Nodes interface {
	Self() ident.NodeID
	// Figures of this node and of those that answer in time.
	Figures(ctx context.Context) map[ident.NodeID]census.Figures
	// Bounds of the partitions of topics, from their leaders; of those that do not
	// answer in time there are none.
	Bounds(ctx context.Context, topics ...*cluster.Topic) map[ident.Partition]rpc.Bounds
	// Connections of a node, of one principal or of all.
	Connections(ctx context.Context, node ident.NodeID, principal *string) ([]connection.Info, error)
	// Dismiss ends a connection wherever it is; false: nobody knows of it.
	Dismiss(ctx context.Context, id string) bool
	// Alerts that fire, and those that resolved lately.
	Alerts() []alert.Alert
	// Age is how long ago this node heard a coordinator: as old is what it tells of others.
	Age() time.Duration
}

// Config of the API. What is marked required has no default.
type Config struct {
	Topology  topology.Present // required
	Control   Controller       // required
	Publisher Publisher        // required
	Reader    Reader           // required
	Streams   Streams          // required
	Nodes     Nodes            // required
	Groups    Groups           // required
	Ask       Asker            // required
	// NotReady gives the reasons why this node cannot serve, as faults; none
	// when it can. nil: always ready.
	NotReady func() []error
	// Warnings are what a node that is ready has to say all the same; nil: nothing.
	Warnings func() []string

	WebSocket http.Handler // at /ws; required
	Pages     http.Handler // at / and below /assets/; nil: none

	Origins origin.Policy // which pages may call

	// Held bounds the answers that clients have not taken and the bodies that
	// are not whole; nil: the API's own.
	Held *budget.Budget
	// Guard knows the callers; nil: nobody is asked.
	Guard *guard.Guard
	// Quota of each client that publishes; nil: no bound.
	Quota *quota.Quota

	Gatherer   prometheus.Gatherer   // behind /metrics; nil: an empty page
	Registerer prometheus.Registerer // nil: nothing is counted
	Logger     *slog.Logger          // nil: silent
}

// API answers HTTP requests. It is safe for concurrent use.
type API struct {
	cfg     Config
	metrics *metrics
	log     *slog.Logger
	handler http.Handler
	table   []route
	drain   context.Context // done once the node drains: waiting polls end
	endWait context.CancelFunc
}

// New makes the API. It starts nothing.
func New(cfg Config) *API {
	a := &API{cfg: cfg, log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.cfg.Gatherer == nil {
		a.cfg.Gatherer = prometheus.NewRegistry()
	}
	if a.cfg.Held == nil {
		a.cfg.Held = budget.New(budget.DefaultBytes)
	}
	a.metrics = newMetrics(cfg.Registerer, a.cfg.Held)
	if a.cfg.Guard == nil {
		a.cfg.Guard = guard.New(guard.Config{})
	}
	if a.cfg.Quota == nil {
		a.cfg.Quota = quota.New(0)
	}
	a.drain, a.endWait = context.WithCancel(context.Background())
	a.handler = a.router()
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Drain ends waiting polls, which answer with what they have. Streams of events
// are ended by their Streams, requests under way go on.
func (a *API) Drain() { a.endWait() }
