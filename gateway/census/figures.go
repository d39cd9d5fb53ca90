package census

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"tidewire/gateway/alert"
	"tidewire/gateway/connection"
	"tidewire/internal/ident"
)

// Figures are what a node says of itself at one moment.
type Figures struct {
	ID          ident.NodeID
	Started     time.Time
	Connections int // WebSockets and streams of events
	Disk        Disk
	Rates       Rates
	// CoordinatorLeader leads the coordinators, as far as this node knows; zero: nobody.
	CoordinatorLeader ident.NodeID
	// Suspects are the nodes that may be dead, as the leading coordinator has heard;
	// others say nothing.
	Suspects []ident.NodeID `json:",omitempty"`
	// Corrupt are the partitions whose replica on this node is damaged.
	Corrupt []ident.Partition `json:",omitempty"`
	// Paused are groups that get nothing new of partitions that this node leads.
	Paused []alert.Pause `json:",omitempty"`
	// FeedAge is how long ago the node heard a coordinator that hears the one that leads.
	FeedAge time.Duration `json:",omitempty"`
}

// Disk of the data folder, in bytes.
type Disk struct {
	Used, Free int64
	// Least is the free space below which the node takes no records; 0: unknown.
	Least int64
}

// Rates over the last seconds, each a second.
type Rates struct{ InRecords, InBytes, OutMessages, OutBytes float64 }

// Backend is what a node answers others who ask about it: rpc.NodeBackend.
type Backend struct {
	Own     func() Figures
	Clients *connection.Set
}

// Figures of this node.
func (b *Backend) Figures(context.Context) ([]byte, error) { return json.Marshal(b.Own()) }

// Connections of this node; of one principal, or of all.
func (b *Backend) Connections(_ context.Context, principal string) ([]byte, error) {
	var of *string
	if principal != "" {
		of = &principal
	}
	return json.Marshal(b.Clients.List(of))
}

// Disconnect closes a client's connection; false: there is none of that name.
func (b *Backend) Disconnect(_ context.Context, id string) (bool, error) {
	return b.Clients.Dismiss(id), nil
}

const (
	// figuresTime bounds the wait for other nodes' figures.
	figuresTime = 500 * time.Millisecond
	// figuresFresh is how long what they said is given to others who want to know.
	figuresFresh = 250 * time.Millisecond
)

// round is one time that everybody was asked.
type round struct {
	done    chan struct{} // closed when what follows is there
	ended   time.Time
	figures map[ident.NodeID]Figures
}

// over says that what came of a round is too old.
func (r *round) over(now time.Time) bool {
	select {
	case <-r.done:
		return now.Sub(r.ended) > figuresFresh
	default:
		return false
	}
}

// Figures of this node and of those that answer. Callers at the same time share what
// others say: however many call, each other node is asked a few times a second.
func (c *Census) Figures(ctx context.Context) map[ident.NodeID]Figures {
	c.mu.Lock()
	r := c.round
	mine := r == nil || r.over(time.Now())
	if mine {
		r = &round{done: make(chan struct{})}
		c.round = r
	}
	c.mu.Unlock()
	if mine { // for the others too: it goes on where this caller does not
		r.figures = c.ask(context.WithoutCancel(ctx), c.others(c.cfg.Topology.Snapshot()))
		r.ended = time.Now()
		close(r.done)
	}
	out := map[ident.NodeID]Figures{}
	select {
	case <-r.done:
		out = maps.Clone(r.figures)
	case <-ctx.Done():
	}
	out[c.cfg.Self] = c.Own()
	return out
}

// ask gives the figures of those of some nodes that answer.
func (c *Census) ask(ctx context.Context, nodes []ident.NodeID) map[ident.NodeID]Figures {
	ctx, cancel := context.WithTimeout(ctx, figuresTime)
	defer cancel()
	var mu sync.Mutex
	out := map[ident.NodeID]Figures{}
	c.each(ctx, nodes, func(ctx context.Context, id ident.NodeID, p Peer) {
		b, err := p.Figures(ctx)
		f, err := said(id, b, err)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		out[id] = f
	})
	return out
}

// said reads what another node says of itself.
func said(id ident.NodeID, b []byte, err error) (f Figures, _ error) {
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("figures of node %s: %w", id, err)
	}
	f.ID = id // whatever it calls itself
	return f, nil
}
