package gateway

import (
	"context"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// departure sends the node's clients to other nodes while the node is drained. It
// goes on serving: who has nowhere else to go comes back.
type departure struct {
	self ident.NodeID
	next func(ctx context.Context, after uint64) (*cluster.Snapshot, error)
	send []func(ctx context.Context) // each tells its clients, until ctx ends

	mu   sync.Mutex
	away bool          // what is wanted
	wake chan struct{} // room for one: it has changed
}

// set says whether clients are to go.
func (d *departure) set(away bool) {
	d.mu.Lock()
	d.away = away
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // run has yet to look at the change before
	}
}

func (d *departure) wanted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.away
}

// run sends clients away each time that is wanted, until ctx ends.
func (d *departure) run(ctx context.Context) error {
	for d.woken(ctx) {
		if d.wanted() {
			d.depart(ctx)
		}
	}
	return nil
}

// woken waits for a change; false: ctx has ended.
func (d *departure) woken(ctx context.Context) bool {
	select {
	case <-d.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// depart sends the clients away that are there, and returns once that is wanted
// no longer, or ctx ends.
func (d *departure) depart(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, send := range d.send {
		telling.Go(func() { send(ctx) })
	}
	for d.woken(ctx) && d.wanted() {
		continue // it was said once more
	}
}

// follow has clients go when the cluster drains this node.
func (d *departure) follow(ctx context.Context) error {
	drained := false
	for index := uint64(0); ; {
		s, err := d.next(ctx, index)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		index = s.Index
		n := s.Nodes[d.self]
		if now := n != nil && n.State == cluster.DrainingState; now != drained {
			drained = now
			d.set(now)
		}
	}
}
