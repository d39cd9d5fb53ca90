package groups

import (
	"sync"

	"tidewire/gateway/group"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// watches are those who want to hear of changes of their groups, and of the leaders of
// their partitions.
type watches struct {
	mu *sync.Mutex
	of map[ident.GroupID]*watched
}

// watched is one group and who watches it.
type watched struct {
	view group.View // as it was last
	by   map[*watch]struct{}
}

// watch is woken by changes.
type watch struct {
	all   *watches
	group ident.GroupID
	woken chan struct{} // room for one
}

func newWatches() watches {
	return watches{mu: new(sync.Mutex), of: map[ident.GroupID]*watched{}}
}

// begin watches a group; end ends that.
func (all *watches) begin(v group.View) *watch {
	w := &watch{all: all, group: v.Group.ID, woken: make(chan struct{}, 1)}
	all.mu.Lock()
	defer all.mu.Unlock()
	of := all.of[w.group]
	if of == nil {
		of = &watched{view: v, by: map[*watch]struct{}{}}
		all.of[w.group] = of
	}
	of.by[w] = struct{}{}
	nudge(w.woken) // what came between the view and now is not missed
	return w
}

func (w *watch) end() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if of := w.all.of[w.group]; of != nil {
		if delete(of.by, w); len(of.by) == 0 {
			delete(w.all.of, w.group)
		}
	}
}

// changed wakes those whose group is another than before. Neither a group nor a topic is
// ever changed, so another one is a change.
func (all *watches) changed(s *cluster.Snapshot) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, of := range all.of {
		now, err := group.Of(s, of.view)
		if err == nil && now.Group == of.view.Group && now.Topic == of.view.Topic {
			continue
		}
		if err == nil {
			of.view = now
		}
		for w := range of.by {
			nudge(w.woken)
		}
	}
}

// nudge leaves word in a channel with room for one.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
