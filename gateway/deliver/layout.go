package deliver

import (
	"slices"

	"tidewire/gateway/cursor"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// A topic's layout is a graph: a partition names the parents it was made of and
// the children that were made of it. A reader of a range of hashes stands on a
// cut of the graph, and moves on to a partition once its parents are read.

// roots are the partitions of the scope that nothing of the scope comes before.
func roots(t *cluster.Topic, s scope) []*cluster.Partition {
	var out []*cluster.Partition
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if s.wants(p) && (s.only != nil || !slices.ContainsFunc(p.Parents, known(t))) {
			out = append(out, p)
		}
	}
	return out
}

// tips are the partitions of the scope that take records today.
func tips(t *cluster.Topic, s scope) []*cluster.Partition {
	var out []*cluster.Partition
	for i := range t.Partitions {
		if p := &t.Partitions[i]; s.wants(p) && (s.only != nil || len(p.Children) == 0) {
			out = append(out, p)
		}
	}
	return out
}

func known(t *cluster.Topic) func(ident.Index) bool {
	return func(i ident.Index) bool { _, ok := t.Partition(i); return ok }
}

// narrow takes from a cursor the places that a reader of the scope needs. ok is
// false where the cursor does not cover the scope. A partition without a place
// is covered by places before it (it is read once those are) or after it (it
// has been read).
func narrow(t *cluster.Topic, s scope, c cursor.Cursor) (places []cursor.Place, ok bool) {
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if !s.wants(p) {
			continue
		}
		if place, has := c.Place(p.Index); has {
			places = append(places, place)
			continue
		}
		before, after := covered(t, p.Parents, c, parents), covered(t, p.Children, c, children)
		if !before && !after {
			return nil, false
		}
		if s.only != nil && before {
			places = append(places, cursor.Place{Partition: p.Index}) // nothing of it has been read
		}
	}
	return places, true
}

func parents(p *cluster.Partition) []ident.Index  { return p.Parents }
func children(p *cluster.Partition) []ident.Index { return p.Children }

// covered reports whether some of the partitions, or of those beyond them, has a place.
func covered(t *cluster.Topic, of []ident.Index, c cursor.Cursor, next func(*cluster.Partition) []ident.Index) bool {
	return slices.ContainsFunc(of, func(i ident.Index) bool {
		if _, has := c.Place(i); has {
			return true
		}
		p, ok := t.Partition(i)
		return ok && covered(t, next(p), c, next)
	})
}
