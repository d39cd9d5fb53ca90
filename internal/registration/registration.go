package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// Coordinator is the coordinator as this node reaches it.
type Coordinator interface {
	Propose(ctx context.Context, change cluster.Change) (cluster.Answer, error)
	Renew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error)
	Snapshot() *cluster.Snapshot
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Notes remember the broker epoch in the data folder.
type Notes interface {
	Noted() ident.BrokerEpoch // 0: none
	// Note is durable when it returns. An error ends the process: the folder failed.
	Note(ident.BrokerEpoch) error
}

// Config tunes a Registration. A zero field means its default.
type Config struct {
	Coordinator Coordinator // required
	Notes       Notes       // required
	// Node is what to register; it is asked at the beginning of each life. Required.
	Node func() cluster.Node
	// Unfit lists the partitions of which this node may have lost what it
	// acknowledged. nil: none.
	Unfit func() []ident.Partition
	// OnLife lets the node's parts take a new life, at a snapshot that has it, and
	// returns when they have: only then does it count. unfit is what Unfit gave for it.
	// fault.Fenced says that another life has to begin in its place. nil: nobody wants
	// to know.
	OnLife func(ctx context.Context, life cluster.Life, unfit []ident.Partition, s *cluster.Snapshot) error
	// Full says that this node's disk takes no records at the moment; nil: it always does.
	Full   func() bool
	Lease  time.Duration // as the coordinator is expected to grant it; 2 s
	Logger *slog.Logger
}

// expireLimit bounds the last word of a stop.
const expireLimit = 2 * time.Second

// Registration is this node's part in the cluster.
type Registration struct {
	cfg   Config
	state atomic.Pointer[standing]
	begun atomic.Pointer[cluster.Life]
	first chan struct{} // closed when the first life counts
	once  sync.Once

	mu  sync.Mutex
	end context.CancelCauseFunc // of the life at hand; nil: none counts
}

// standing is what is known of the life at hand. It never changes.
type standing struct {
	life   cluster.Life
	lease  cluster.Lease  // the latest
	leases cluster.Leases // that count
}

// New does no I/O and starts nothing.
func New(cfg Config) *Registration {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Unfit == nil {
		cfg.Unfit = func() []ident.Partition { return nil }
	}
	if cfg.Full == nil {
		cfg.Full = func() bool { return false }
	}
	if cfg.OnLife == nil {
		cfg.OnLife = func(context.Context, cluster.Life, []ident.Partition, *cluster.Snapshot) error { return nil }
	}
	cfg.Lease = cmp.Or(cfg.Lease, 2*time.Second)
	r := &Registration{cfg: cfg, first: make(chan struct{})}
	r.state.Store(&standing{})
	r.begun.Store(&cluster.Life{})
	return r
}

// Life is the life at hand; zero: none that counts.
func (r *Registration) Life() cluster.Life { return r.state.Load().life }

// Begun is the life at hand, or the one that asks to count: it may do so already, and
// its node has yet to hear of it. Zero: none.
func (r *Registration) Begun() cluster.Life { return *r.begun.Load() }

// Holds says whether this node has a lease at this moment.
func (r *Registration) Holds() bool {
	s := r.state.Load()
	return s.life.Epoch != 0 && time.Now().Before(s.leases.Until())
}

// Counts is the epoch of the life at hand, 0 if none counts, and what Holds says of it.
func (r *Registration) Counts() (ident.BrokerEpoch, bool) {
	s := r.state.Load()
	return s.life.Epoch, s.life.Epoch != 0 && time.Now().Before(s.leases.Until())
}

// Leads says whether this node, which has acted on the snapshot of an index and none after
// it, is sure at this moment to lead what that says. It asks for more than Holds does: no
// lease of a coordinator that knew more than the snapshot counts.
func (r *Registration) Leads(acted uint64) bool {
	s := r.state.Load()
	return s.life.Epoch != 0 && time.Now().Before(s.leases.Leads(acted))
}

// Lease is the latest that was granted to the life at hand: it tells who leads the
// coordinators and whom they doubt. False: it has run out, or there was none.
func (r *Registration) Lease() (cluster.Lease, bool) {
	s := r.state.Load()
	return s.lease, r.Holds()
}

// Registered is closed once the first life of this process counts.
func (r *Registration) Registered() <-chan struct{} { return r.first }

// Run lives until ctx ends. A refusal of the coordinator and a failed note are
// errors: this node cannot be part of the cluster as it is.
func (r *Registration) Run(ctx context.Context) error {
	for {
		began := time.Now()
		err := r.live(ctx)
		if ctx.Err() != nil {
			r.leave(ctx)
			return nil
		}
		if !errors.Is(err, errOver) && !fault.Is(err, fault.Fenced) {
			return err
		}
		r.begin(&standing{}, nil)
		r.begun.Store(&cluster.Life{})
		r.cfg.Logger.Warn("this life of the node is over: another one begins", "err", err)
		// Two processes that take one another's lives do not do it all the time.
		if time.Since(began) < shortLife && !sleep.For(ctx, shortLife/2+rand.N(shortLife)) {
			return nil
		}
	}
}

// shortLife is how long a life lasts at least that is followed by another at once.
const shortLife = time.Second

// errOver ends a life and begins the next.
var errOver = errors.New("the life is over")

// live is one life.
func (r *Registration) live(ctx context.Context) error {
	life, unfit, s, err := r.register(ctx)
	if err != nil {
		return err
	}
	if err := r.cfg.Notes.Note(life.Epoch); err != nil {
		return fmt.Errorf("note broker epoch %d: %w", life.Epoch, err)
	}
	if err := r.cfg.OnLife(ctx, life, unfit, s); err != nil {
		return fmt.Errorf("begin life %d: %w", life.Epoch, err)
	}
	r.begun.Store(&life)
	if _, err := r.insist(ctx, cluster.Change{Activate: &cluster.Activate{Node: life.Node, Epoch: life.Epoch}}); err != nil {
		return fmt.Errorf("activate life %d: %w", life.Epoch, err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.begin(&standing{life: life}, end)
	r.cfg.Logger.Info("the node's life counts", "epoch", uint64(life.Epoch))
	r.once.Do(func() { close(r.first) })
	return r.renew(ctx, life)
}

// begin notes which life is at hand, and what ends it.
func (r *Registration) begin(s *standing, end context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Store(s)
	r.end = end
}

// Renounce ends a life, if it is the one at hand, so that the next one begins: what the
// node has to say of itself anew counts from there, and nothing that others know of it
// from before.
func (r *Registration) Renounce(life cluster.Life, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil && r.state.Load().life == life {
		r.end(fmt.Errorf("%w: %w", errOver, why))
	}
}

// register begins a life. The snapshot that it gives has it, and that what it gives as
// unfit counts for nothing.
func (r *Registration) register(ctx context.Context) (life cluster.Life, unfit []ident.Partition, s *cluster.Snapshot, err error) {
	n := r.cfg.Node()
	unfit = r.cfg.Unfit()
	first := unfit[:min(len(unfit), cluster.MaxUnfit)]
	a, err := r.insist(ctx, cluster.Change{Register: &cluster.Register{Node: n, Last: r.cfg.Notes.Noted(), Unfit: first}})
	if err != nil {
		return life, nil, nil, fmt.Errorf("register: %w", err)
	}
	life = cluster.Life{Node: n.ID, Epoch: a.Epoch}
	index := a.Index
	for rest := unfit[len(first):]; len(rest) > 0; { // before it can lead any of them
		some := rest[:min(len(rest), cluster.MaxUnfit)]
		rest = rest[len(some):]
		more, err := r.insist(ctx, cluster.Change{Unfit: &cluster.Unfit{Life: life, Partitions: some}})
		if err != nil {
			return life, nil, nil, fmt.Errorf("register: %w", err)
		}
		index = max(index, more.Index)
	}
	if s, err = r.reach(ctx, index); err != nil {
		return life, nil, nil, err
	}
	if now := s.Nodes[n.ID]; now == nil || now.BrokerEpoch != life.Epoch {
		return life, nil, nil, fmt.Errorf("%w: somebody else has registered as node %s", errOver, n.ID)
	}
	return life, unfit, s, nil
}

// reach waits until the feed has an index.
func (r *Registration) reach(ctx context.Context, index uint64) (*cluster.Snapshot, error) {
	return r.cfg.Coordinator.Next(ctx, index-min(index, 1))
}

// insist proposes until the coordinator has answered: there is nothing that the node
// could do without.
func (r *Registration) insist(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	pause := 20 * time.Millisecond
	for {
		a, err := r.cfg.Coordinator.Propose(ctx, change)
		if err == nil || !passing(err) {
			return a, err
		}
		r.cfg.Logger.Info("the coordinator does not answer yet", "change", change.Kind(), "err", err)
		if !sleep.For(ctx, pause/2+rand.N(pause)) {
			return cluster.Answer{}, context.Cause(ctx)
		}
		pause = min(2*pause, time.Second)
	}
}

// passing says that an error is of the moment.
func passing(err error) bool {
	switch fault.KindOf(err) {
	case fault.CoordinatorUnavailable, fault.LeaderUnavailable, fault.UnknownOutcome, fault.Draining, fault.DiskFull, fault.Throttled:
		return true
	case fault.Internal: // nobody classified it, as with a connection that was lost
		return true
	}
	return false
}

// leave declares the life over, if there is one.
func (r *Registration) leave(ctx context.Context) {
	life := r.Life()
	r.state.Store(&standing{})
	r.begun.Store(&cluster.Life{})
	if life.Epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), expireLimit)
	defer cancel()
	if _, err := r.cfg.Coordinator.Propose(ctx, cluster.Change{Expire: &cluster.Expire{Lives: []cluster.Life{life}}}); err != nil {
		r.cfg.Logger.Info("the cluster was not told that this node stops: it waits for its lease to end", "err", err)
	}
}
