package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// Client calls one coordinator. A call may be made concurrently and ends with its ctx.
type Client interface {
	Propose(ctx context.Context, to ident.NodeID, request cluster.RequestID, change cluster.Change) (cluster.Answer, error)
	Renew(ctx context.Context, to ident.NodeID, r cluster.Renewal) (cluster.Lease, error)
	Report(ctx context.Context, to ident.NodeID, s cluster.Suspicion) error
	Touch(ctx context.Context, to ident.NodeID, signs []cluster.SignOfLife) (cluster.Lost, error)
	Progress(ctx context.Context, to ident.NodeID, of cluster.ProgressOf) ([]cluster.GroupProgress, error)
	Decided(ctx context.Context, to ident.NodeID) (uint64, error)
	// Watch calls each with every message of a coordinator's feed from an index on,
	// until it fails or the stream ends; its error is never nil.
	Watch(ctx context.Context, to ident.NodeID, from uint64, each func(cluster.Message) error) error
}

// Config tunes a Remote.
type Config struct {
	Client Client // required
	// Known lists the coordinators that gossip knows; those of the snapshot are
	// known as well. Required: without it nothing is ever found.
	Known  func() []ident.NodeID
	Logger *slog.Logger
}

const (
	// proposeLimit bounds a change that has no earlier deadline of its own.
	proposeLimit = 10 * time.Second
	// tryLimit bounds one try: a coordinator that died does not use up the time in
	// which its successor could answer.
	tryLimit = time.Second
	// silentAfter ends a stream on which nothing came: it beats four times a second.
	silentAfter = time.Second
	// deafAfter leaves a coordinator that has not heard its leader for so long.
	deafAfter = time.Second
	// The pause before the next stream, or try, doubles from least to most.
	leastPause = 10 * time.Millisecond
	mostPause  = 500 * time.Millisecond
	// avoidFor is how long one that could not be reached is passed over.
	avoidFor   = 100 * time.Millisecond
	retryAfter = time.Second
)

// Remote is the coordinator, elsewhere.
type Remote struct {
	cfg  Config
	feed *feed.Feed

	mu     sync.Mutex
	heard  time.Time    // when a coordinator last heard the one that leads, as this node knows
	leader ident.NodeID // as was heard last; zero: unknown
	turn   int          // which of the known comes next
	lost   map[ident.NodeID]time.Time
}

// New does no I/O and starts nothing.
func New(cfg Config) *Remote {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Remote{cfg: cfg, feed: feed.New(), heard: time.Now(), lost: map[ident.NodeID]time.Time{}}
}

// Snapshot is the latest state; never nil.
func (r *Remote) Snapshot() *cluster.Snapshot { return r.feed.Snapshot() }

// Next waits until there is a snapshot newer than the index and gives the latest.
func (r *Remote) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	return r.feed.Next(ctx, after)
}

// Leader is the leading coordinator as this node heard it last; zero: unknown.
func (r *Remote) Leader() ident.NodeID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// Age is how long ago a coordinator, as this node has heard, heard the one that leads:
// what the snapshot tells may be as old. Before the first word it counts from New.
func (r *Remote) Age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.heard)
}

// told notes how fresh a message is.
func (r *Remote) told(m cluster.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := time.Now().Add(-m.Heard); at.After(r.heard) {
		r.heard = at
	}
}

// Run follows the change feed until ctx ends.
func (r *Remote) Run(ctx context.Context) error {
	pause := leastPause
	for ctx.Err() == nil {
		to := r.pick()
		if to != (ident.NodeID{}) {
			heard, err := r.watch(ctx, to)
			if ctx.Err() != nil {
				break
			}
			r.cfg.Logger.Info("a coordinator's change feed ended: another one is followed", "node", to.String(), "err", err)
			r.missed(to)
			if heard {
				pause = leastPause
			}
		}
		if !sleep.For(ctx, pause/2+rand.N(pause)) {
			break
		}
		pause = min(2*pause, mostPause)
	}
	return nil
}

var errSilent = errors.New("nothing was heard on it for a second")

// watch follows one coordinator. It says whether anything was heard at all.
func (r *Remote) watch(ctx context.Context, to ident.NodeID) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silentAfter, func() { cancel(errSilent) })
	defer silence.Stop()
	var parts *cluster.Delta // of news that are not all there
	err = r.cfg.Client.Watch(ctx, to, r.feed.Snapshot().Index, func(m cluster.Message) error {
		silence.Reset(silentAfter)
		if m.Heard > deafAfter {
			return fmt.Errorf("it has not heard its leader for %s", m.Heard)
		}
		heard = true
		if m.Leader != (ident.NodeID{}) {
			r.heardOf(m.Leader)
		}
		news, err := joined(&parts, m.News)
		if err == nil && news != nil {
			err = r.take(news)
		}
		if err == nil {
			r.told(m)
		}
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return heard, err
}

// joined gives news once all parts of them are there; nil before that.
func joined(parts **cluster.Delta, news *cluster.Delta) (*cluster.Delta, error) {
	if news == nil {
		return nil, nil
	}
	if *parts == nil {
		*parts = news
	} else if err := (*parts).Join(news); err != nil {
		return nil, err
	}
	if news.More {
		return nil, nil
	}
	all := *parts
	*parts = nil
	return all, nil
}

// take applies what is new.
func (r *Remote) take(news *cluster.Delta) error {
	now := r.feed.Snapshot()
	if now.Cluster != (ident.ClusterID{}) && news.Cluster != now.Cluster {
		return fmt.Errorf("it is a coordinator of cluster %s, and this node's is %s", news.Cluster, now.Cluster)
	}
	if news.To <= now.Index {
		return nil // what it tells is no newer
	}
	next, err := news.Apply(now)
	if err != nil {
		return err
	}
	r.feed.Publish(next)
	return nil
}

// pick chooses whom to call: the leader, else the next one that is known.
func (r *Remote) pick() ident.NodeID {
	known := r.known()
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	avoided := func(id ident.NodeID) bool { return now.Sub(r.lost[id]) < avoidFor }
	if r.leader != (ident.NodeID{}) && !avoided(r.leader) {
		return r.leader
	}
	for range known {
		r.turn++
		if id := known[r.turn%len(known)]; !avoided(id) {
			return id
		}
	}
	return ident.NodeID{}
}

// known lists the coordinators, those that gossip knows first.
func (r *Remote) known() []ident.NodeID {
	all := slices.Clone(r.cfg.Known())
	var more []ident.NodeID
	for id, n := range r.feed.Snapshot().Nodes {
		if slices.Contains(n.Roles, "coordinator") && !slices.Contains(all, id) {
			more = append(more, id)
		}
	}
	slices.SortFunc(more, func(a, b ident.NodeID) int { return slices.Compare(a[:], b[:]) })
	return append(all, more...)
}

func (r *Remote) heardOf(leader ident.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = leader
}

// missed passes one over for a while.
func (r *Remote) missed(id ident.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for other, at := range r.lost {
		if now.Sub(at) >= avoidFor {
			delete(r.lost, other)
		}
	}
	r.lost[id] = now
	if r.leader == id {
		r.leader = ident.NodeID{}
	}
}

// errNobody is why nothing could be asked.
var errNobody = fault.New(fault.CoordinatorUnavailable, "no coordinator is known, or none can be reached").After(retryAfter)
