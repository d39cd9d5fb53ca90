package groups

import (
	"sync"
	"time"

	"tidewire/internal/ident"
)

const (
	// mostWaits bounds the calls that wait at one other node: a connection takes so many
	// at once, and settlements must find room beside them. Who finds none looks every
	// crowdPause instead.
	mostWaits  = 1024
	crowdPause = 200 * time.Millisecond
)

// crowd counts who waits at other nodes.
type crowd struct {
	mu sync.Mutex
	at map[ident.NodeID]int
}

// enter counts one in, and gives what counts it out; nil: there are enough.
func (c *crowd) enter(node ident.NodeID) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[node] >= mostWaits {
		return nil
	}
	if c.at == nil {
		c.at = map[ident.NodeID]int{}
	}
	c.at[node]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.at[node]--; c.at[node] == 0 {
			delete(c.at, node)
		}
	}
}
