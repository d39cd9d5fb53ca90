package groups

import (
	"context"

	"tidewire/internal/rpc"
)

// lookout is a Take of nothing that waits without a goroutine.
type lookout struct {
	*taking
	left bool
}

// Lookout begins one: poke has an entry whenever Look may have something to say. nil: a Take
// would have to wait before it could say anything at all.
func (g *Groups) Lookout(t rpc.Take, poke chan struct{}) rpc.Lookout {
	if g.known().Index < t.Index {
		return nil
	}
	c := g.taking(t, poke)
	for _, u := range c.units {
		if u != nil && !u.isReady() {
			return nil
		}
	}
	c.join()
	return &lookout{taking: c}
}

// Look is of rpc.Lookout.
func (l *lookout) Look() (t rpc.Taken, ok bool) {
	if !l.try(context.Background()) { // it waits for nobody
		l.listen()
		return t, false
	}
	return l.answer(), true
}

// Leave is of rpc.Lookout.
func (l *lookout) Leave() {
	if !l.left {
		l.left = true
		l.quit()
	}
}
