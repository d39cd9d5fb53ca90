package ask

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/publish"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

// Publisher takes records in; done is called exactly once, perhaps before Publish returns.
type Publisher interface {
	Publish(req publish.Request, done func(publish.Result))
}

// Reader reads partitions, wherever their leaders are.
type Reader interface {
	Read(ctx context.Context, q rpc.Read) (rpc.ReadResult, error)
}

// Changes is the cluster's change feed.
type Changes interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Peer is another gateway. A call that did not reach it fails with
// fault.LeaderUnavailable; one of which nobody knows, with fault.UnknownOutcome.
type Peer interface {
	// HandReply gives it a reply to a request of its own.
	HandReply(ctx context.Context, to string, r *inbox.Reply) (rpc.Handed, error)
	// CollectReply waits so long for the reply to a request of its own.
	CollectReply(ctx context.Context, to string, wait time.Duration) (rpc.Collected, error)
}

// Mail is a broker that leads partitions, this node's or another's, knows the requests there
// that can be repeated, and keeps the replies to those whose gateway is gone.
type Mail interface {
	// KeepReply keeps a reply, where its gateway takes none by itself any more: it says so
	// itself (gone), or the cluster does.
	KeepReply(ctx context.Context, to string, r *inbox.Reply, gone bool) (rpc.Handed, error)
	// KeptReply waits so long for a reply. until is the deadline of the request, in ms
	// since 1970 by the clock of the leader.
	KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (rpc.Collected, error)
	// Original finds the record of a request that came before.
	Original(ctx context.Context, s rpc.Sought) (rpc.Original, error)
}

// Config of Ask. What is not marked is required.
type Config struct {
	Self ident.NodeID
	// Life is the life of this node at hand, 0 if none counts, and whether it is sure of it:
	// it has a lease. nil: the node is alone, and always sure.
	Life      func() (life ident.BrokerEpoch, held bool)
	Topology  topology.Present
	Changes   Changes // nil: a leader that moves is found by asking
	Publisher Publisher
	Reader    Reader
	Peer      func(ident.NodeID) (Peer, error) // nil: there is no other node
	Mail      func(ident.NodeID) (Mail, error)
	// Pending bounds the requests that wait, or that are kept for a repeat; 65,536.
	Pending int
	// KeptBytes bounds the replies that are kept for a repeat; 64 MiB.
	KeptBytes  int64
	Registerer prometheus.Registerer // nil: nothing is counted
}

// Ask is request-reply at a gateway. It is safe for concurrent use.
type Ask struct {
	cfg     Config
	process inbox.Process
	metrics metrics
	alarm   *sleep.Alarm // for what comes next of the box and the beat

	life    context.Context // of what collects
	end     context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	box        *inbox.Box
	byKey      map[key]*lasting
	byToken    map[inbox.Token]*lasting
	collecting int
	beat       beat
	draining   bool
	ended      bool // this life of the gateway is over, as far as inboxes go
}

// New makes it. It starts nothing; deadlines are looked after only while Run does.
func New(cfg Config) *Ask {
	cfg.Pending = cmp.Or(cfg.Pending, 1<<16)
	cfg.KeptBytes = cmp.Or(cfg.KeptBytes, 64<<20)
	if cfg.Life == nil {
		cfg.Life = func() (ident.BrokerEpoch, bool) { return 0, true }
	}
	a := &Ask{
		cfg: cfg, alarm: sleep.NewAlarm(), box: inbox.NewBox(inbox.Bounds{Entries: cfg.Pending, Bytes: cfg.KeptBytes}),
		byKey: map[key]*lasting{}, byToken: map[inbox.Token]*lasting{},
	}
	a.life, a.end = context.WithCancel(context.Background())
	_, _ = rand.Read(a.process[:]) // never fails
	a.metrics = newMetrics(cfg.Registerer, a)
	return a
}

// Run looks after deadlines until ctx ends. Who waits then is told that the node stops.
func (a *Ask) Run(ctx context.Context) error {
	a.alarm.Run(ctx, a.look)
	a.stop()
	a.end()
	a.running.Wait()
	return nil
}

// look ends what has had its time, and says when to look again.
func (a *Ask) look(now time.Time) time.Time {
	a.mu.Lock()
	late, ended := a.box.Expire(now)
	for _, token := range ended {
		a.forgetLocked(token)
	}
	next, _ := a.box.Next()
	if again := a.beatLocked(now); !again.IsZero() && (next.IsZero() || again.Before(next)) {
		next = again
	}
	a.mu.Unlock()
	for _, c := range late {
		call := c.Of.(*Call)
		call.answered(nil, call.late())
	}
	return next
}

// setLocked sees to it that the loop looks in time.
func (a *Ask) setLocked() {
	if next, ok := a.box.Next(); ok {
		a.alarm.Set(next)
	}
}

// Drain refuses new requests. Those that wait go on until Settle.
func (a *Ask) Drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
}

// Settle gives those that wait a moment, and then ends them: their clients ask elsewhere.
// From then on this gateway is gone as far as replies go, and what it keeps for repeats
// goes to the leaders, as far as there is time.
func (a *Ask) Settle(ctx context.Context, moment time.Duration) {
	a.Drain()
	if a.Waiting() > 0 {
		sleep.For(ctx, moment)
	}
	left := a.stop()
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	for _, x := range left {
		_, _ = a.keep(ctx, a.cfg.Topology.Snapshot(), &x.to, x.reply, true) // one that is lost ends in reply-timeout
	}
}

// letter is a reply that is kept for a repeat.
type letter struct {
	to    inbox.Address
	reply *inbox.Reply
}

// stop ends every request, and gives the replies that are kept.
func (a *Ask) stop() (left []letter) {
	a.mu.Lock()
	a.draining, a.ended = true, true
	for token, k := range a.byToken {
		// Of a repeat that collects elsewhere the record has another inbox.
		if r := a.box.Kept(token); r != nil && !k.accepted.Duplicate {
			left = append(left, letter{k.address, r})
		}
	}
	callers := a.box.Clear()
	clear(a.byKey)
	clear(a.byToken)
	a.mu.Unlock()
	for _, c := range callers {
		c.Of.(*Call).answered(nil, errDraining)
	}
	return left
}

// mine says that an inbox is of this life of this gateway, which is not over.
func (a *Ask) mine(to *inbox.Address) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mineLocked(to)
}

func (a *Ask) mineLocked(to *inbox.Address) bool {
	return to.Node == a.cfg.Self && to.Process == a.process && !a.ended
}

var errDraining = fault.New(fault.Draining, "the node is shutting down; the request may have been kept, and a responder may act on it: with the same correlation id it is one request, wherever it is repeated")

// Waiting is how many clients wait for replies.
func (a *Ask) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.box.Callers()
}

// served says whether a live member of any group of a topic is there to respond.
func served(s *cluster.Snapshot, t *cluster.Topic) bool {
	for g := range s.Groups[t.ID].All() {
		if len(g.Members) > 0 {
			return true
		}
	}
	return false
}

// Open is how many inboxes there are: of requests that wait, and of those that are kept.
func (a *Ask) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.box.Entries()
}
