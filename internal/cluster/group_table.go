package cluster

import (
	"cmp"
	"encoding/json"
	"iter"
	"math/bits"
	"slices"

	"tidewire/internal/ident"
)

// GroupTable is the groups of one topic, by name. It never changes: With and Without give
// another one, which shares most of it, so that one of many thousand groups changes at the
// price of a few dozen. The nil table is an empty one.
type GroupTable struct {
	shards   []groupShard // a power of two of them, by the hash of the name
	count    int
	modified uint64 // the latest change of any of them
}

type groupShard struct {
	groups   []*Group // by name, ascending
	modified uint64
}

// groupsAShard is how many groups go into one shard, about.
const groupsAShard = 64

// Get finds a group by its name; nil: there is none.
func (t *GroupTable) Get(name string) *Group {
	if t == nil {
		return nil
	}
	s := &t.shards[t.shard(name)]
	if i, ok := s.find(name); ok {
		return s.groups[i]
	}
	return nil
}

// Len is how many there are.
func (t *GroupTable) Len() int {
	if t == nil {
		return 0
	}
	return t.count
}

// Modified is the index of the latest change of any of them.
func (t *GroupTable) Modified() uint64 {
	if t == nil {
		return 0
	}
	return t.modified
}

// All gives every group, in an order that depends on their names alone.
func (t *GroupTable) All() iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		if t == nil {
			return
		}
		for i := range t.shards {
			for _, g := range t.shards[i].groups {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// Since gives the groups that changed after an index. It passes over those that did
// not, many at a time.
func (t *GroupTable) Since(index uint64) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		if t == nil || t.modified <= index {
			return
		}
		for i := range t.shards {
			if t.shards[i].modified <= index {
				continue
			}
			for _, g := range t.shards[i].groups {
				if g.Modified > index && !yield(g) {
					return
				}
			}
		}
	}
}

// With is the table with groups, each new or in place of the one of its name.
func (t *GroupTable) With(groups ...*Group) *GroupTable {
	out := t.copy(len(groups))
	own := make([]bool, len(out.shards)) // shards that the copy does not share
	for _, g := range groups {
		k := out.shard(g.Name)
		s := &out.shards[k]
		if !own[k] {
			s.groups, own[k] = slices.Clone(s.groups), true
		}
		if i, there := s.find(g.Name); there {
			s.groups[i] = g
		} else {
			s.groups = slices.Insert(s.groups, i, g)
			out.count++
		}
	}
	return out.settled(own)
}

// Without is the table without a group; nil where it was the last one.
func (t *GroupTable) Without(name string) *GroupTable {
	switch {
	case t.Get(name) == nil:
		return t
	case t.count == 1:
		return nil
	}
	out := t.copy(0)
	own := make([]bool, len(out.shards))
	k := out.shard(name)
	s := &out.shards[k]
	i, _ := s.find(name)
	s.groups, own[k] = slices.Concat(s.groups[:i], s.groups[i+1:]), true
	out.count--
	return out.settled(own)
}

// copy has room for so many groups more.
func (t *GroupTable) copy(more int) *GroupTable {
	if t == nil {
		return &GroupTable{shards: make([]groupShard, shardsFor(more))}
	}
	return &GroupTable{shards: slices.Clone(t.shards), count: t.count}
}

// settled brings a copy into the one form that its groups have, whatever way they came.
func (t *GroupTable) settled(own []bool) *GroupTable {
	for k := range own {
		if own[k] {
			t.shards[k] = newShard(t.shards[k].groups)
		}
	}
	if most := shardsFor(t.count); most != len(t.shards) {
		t.divide(most)
	}
	for i := range t.shards {
		t.modified = max(t.modified, t.shards[i].modified)
	}
	return t
}

func (t *GroupTable) divide(into int) {
	old := t.shards
	t.shards = make([]groupShard, into)
	for _, s := range old {
		for _, g := range s.groups {
			k := t.shard(g.Name)
			t.shards[k].groups = append(t.shards[k].groups, g)
		}
	}
	for i := range t.shards {
		groups := t.shards[i].groups
		slices.SortFunc(groups, func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
		t.shards[i] = newShard(groups)
	}
}

func newShard(groups []*Group) groupShard {
	if len(groups) == 0 {
		return groupShard{}
	}
	s := groupShard{groups: groups}
	for _, g := range groups {
		s.modified = max(s.modified, g.Modified)
	}
	return s
}

func shardsFor(count int) int { return 1 << bits.Len(uint(count/groupsAShard)) }

func (t *GroupTable) shard(name string) int {
	return int(ident.KeyHash(name)) & (len(t.shards) - 1)
}

func (s *groupShard) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.groups, name, func(g *Group, name string) int { return cmp.Compare(g.Name, name) })
}

// MarshalJSON writes the groups as a list.
func (t *GroupTable) MarshalJSON() ([]byte, error) { return json.Marshal(slices.Collect(t.All())) }
