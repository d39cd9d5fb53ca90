package link

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/replica"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Network opens streams to other brokers.
type Network interface {
	// Follow opens the stream of a follower to a leader. It lives until ctx ends or
	// either side ends it.
	Follow(ctx context.Context, f rpc.Follow) (FollowerStream, error)
}

// FollowerStream is a stream as the follower has it. Recv may be called beside the others,
// which are called by one goroutine at a time. What Recv filled in is overwritten by the
// next call, but for the batches, which are the caller's for good.
type FollowerStream interface {
	Send(m *rpc.FromFollower) error
	// Post is Send that waits for nobody. It may be called once Ready has said so.
	Post(m *rpc.FromFollower) error
	Ready() bool
	Recv(m *rpc.FromLeader) error
}

// LeaderStream is the same as the leader has it. End ends it: calls that wait return.
type LeaderStream interface {
	Send(m *rpc.FromLeader) error
	Post(m *rpc.FromLeader) error
	Ready() bool
	Recv(m *rpc.FromFollower) error
	End()
}

// Coordinator hears which nodes may be dead.
type Coordinator interface {
	Report(ctx context.Context, s cluster.Suspicion) error
}

// Journal is the one of the data folder. It calls Taken and Told of Links.
type Journal interface {
	// Waiting says that entries wait to be taken: Taken comes.
	Waiting() bool
	// Telling says that who waited for a commit is being told: Told comes.
	Telling() bool
}

// Node is what a broker's links need of the rest of it.
type Node interface {
	Replica(p ident.Partition) (*replica.Replica, error)
	// Followed are the replicas that follow a leader.
	Followed(leader ident.NodeID) []*replica.Replica
	Replicas() []*replica.Replica
	// Life is the latest life of a node that the coordinator knows.
	Life(n ident.NodeID) (cluster.Life, bool)
}

// Config of Links. All of it is required.
type Config struct {
	Node        Node
	Network     Network
	Coordinator Coordinator
	Journal     Journal
	Now         func() time.Time
	Logger      *slog.Logger
}

// Links are this broker's streams.
type Links struct {
	cfg    Config
	unsaid unsaid
	rounds rounds

	mu      sync.RWMutex
	life    cluster.Life // zero: none yet
	up      map[ident.NodeID]*upstream
	down    map[ident.NodeID]*downstream
	wanted  chan struct{} // room for one: up is to be looked at
	stopped bool
}

// New makes Links. It starts nothing.
func New(cfg Config) *Links {
	return &Links{cfg: cfg, up: map[ident.NodeID]*upstream{}, down: map[ident.NodeID]*downstream{}, wanted: make(chan struct{}, 1), unsaid: unsaid{of: map[ident.Partition]pushed{}}}
}

// Live says which life this broker has now. The streams of a former one end.
func (l *Links) Live(life cluster.Life) {
	l.mu.Lock()
	if l.life == life {
		l.mu.Unlock()
		return
	}
	l.life = life
	for _, u := range l.up {
		u.again()
	}
	for _, d := range l.down {
		d.end()
	}
	l.mu.Unlock()
}

// Self is the life that this broker has now; zero: none yet.
func (l *Links) Self() cluster.Life {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.life
}

// Want says which leaders this broker follows: it keeps a stream to each of them.
func (l *Links) Want(leaders map[ident.NodeID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, u := range l.up {
		if !leaders[n] {
			u.end()
			delete(l.up, n)
		}
	}
	for n := range leaders {
		if l.up[n] == nil {
			l.up[n] = newUpstream(l, n)
		}
	}
	select {
	case l.wanted <- struct{}{}:
	default:
	}
}

// downstream is the stream of a follower; nil: there is none.
func (l *Links) downstream(follower ident.NodeID) *downstream {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.down[follower]
}

// upstream is the stream to a leader; nil: none is wanted.
func (l *Links) upstream(leader ident.NodeID) *upstream {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.up[leader]
}

// Push is of replica.Outlet.
func (l *Links) Push(follower ident.NodeID, p ident.Partition) {
	if d := l.downstream(follower); d != nil {
		d.dirty.due(p)
		d.push()
	}
}

// Tell is of replica.Outlet.
func (l *Links) Tell(follower ident.NodeID, p ident.Partition) {
	if d := l.downstream(follower); d != nil {
		d.dirty.note(p)
	}
}

// Say is of replica.Outlet.
func (l *Links) Say(leader ident.NodeID, p ident.Partition) {
	if u := l.upstream(leader); u != nil {
		u.dirty.due(p)
		u.say()
	}
}

// Heard is of replica.Outlet.
func (l *Links) Heard(leader ident.NodeID) time.Time {
	u := l.upstream(leader)
	if u == nil {
		return time.Time{}
	}
	return time.Unix(0, u.heard.Load())
}

// Run keeps the streams to leaders until ctx ends.
func (l *Links) Run(ctx context.Context) error {
	var g errgroup.Group
	defer l.stop()
	for {
		l.mu.RLock()
		for _, u := range l.up {
			if u.start() {
				g.Go(func() error { u.run(ctx); return nil })
			}
		}
		l.mu.RUnlock()
		select {
		case <-l.wanted:
		case <-ctx.Done():
			l.stop()
			return g.Wait()
		}
	}
}

// stop ends the streams of followers; no other begins.
func (l *Links) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, d := range l.down {
		d.end()
	}
}
