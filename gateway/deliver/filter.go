package deliver

import (
	"slices"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Filter says which records of a topic a reader wants. The zero value is all of
// them. At most one of Keys and KeyPrefix is given.
type Filter struct {
	Partition *ident.Index
	Keys      []string // any of these; nil: no such filter
	KeyPrefix string   // "": no such filter
}

// NewFilter makes a filter of a request's optional parts, as wire reads them.
func NewFilter(partition *ident.Index, key *string, keys []string, prefix *string) Filter {
	f := Filter{Partition: partition, Keys: keys}
	if key != nil {
		f.Keys = []string{*key}
	}
	if prefix != nil {
		f.KeyPrefix = *prefix
	}
	return f
}

// matcher is a filter made ready for many keys.
type matcher struct {
	all    bool
	prefix bool   // text is what a key begins with
	text   string // the key, or the prefix
	many   map[string]struct{}
}

func (f Filter) matcher() matcher {
	switch {
	case len(f.Keys) == 1:
		return matcher{text: f.Keys[0]}
	case len(f.Keys) > 1:
		m := matcher{many: make(map[string]struct{}, len(f.Keys))}
		for _, k := range f.Keys {
			m.many[k] = struct{}{}
		}
		return m
	case f.KeyPrefix != "":
		return matcher{prefix: true, text: f.KeyPrefix}
	}
	return matcher{all: true}
}

// match reports whether a record with this key is wanted; an empty key is none.
func (m *matcher) match(key []byte) bool {
	switch {
	case m.all:
		return true
	case len(key) == 0:
		return false
	case m.prefix:
		return len(key) >= len(m.text) && string(key[:len(m.text)]) == m.text
	case m.many != nil:
		_, ok := m.many[string(key)]
		return ok
	}
	return string(key) == m.text
}

// hashedKey is a key that a filter names.
type hashedKey struct {
	key  string
	hash uint32
}

// keys are those that the filter names, if it names several.
func (m *matcher) keys() []hashedKey {
	if m.many == nil {
		return nil
	}
	keys := make([]hashedKey, 0, len(m.many))
	for k := range m.many {
		keys = append(keys, hashedKey{k, ident.KeyHash(k)})
	}
	return keys
}

// scope is the part of a topic's layout that a filter can find records in.
type scope struct {
	rng    ident.HashRange // the hashes that a reader of the scope covers
	only   *ident.Index    // one partition, whatever comes after it
	hashes []uint32        // of the wanted keys; nil: every hash of rng
}

// wants reports whether the partition can hold records of the scope.
func (s scope) wants(p *cluster.Partition) bool {
	switch {
	case s.only != nil:
		return p.Index == *s.only
	case s.hashes != nil:
		return slices.ContainsFunc(s.hashes, p.Range.Contains)
	}
	return p.Range.Overlaps(s.rng)
}

// scope finds where in the topic the filter reads. A reader of keys reads the
// partitions that own their hashes and covers the hashes from the least to the
// greatest of them.
func (f Filter) scope(t *cluster.Topic) (scope, error) {
	s := scope{rng: ident.FullRange}
	if len(f.Keys) > 0 {
		s.rng = ident.HashRange{Lo: ident.HashSpace}
		for _, k := range f.Keys {
			h := ident.KeyHash(k)
			s.hashes = append(s.hashes, h)
			s.rng.Lo, s.rng.Hi = min(s.rng.Lo, uint64(h)), max(s.rng.Hi, uint64(h)+1)
		}
	}
	if f.Partition == nil {
		return s, nil
	}
	p, err := topology.Partition(t, *f.Partition)
	if err != nil {
		return scope{}, err
	}
	for i, h := range s.hashes {
		if !p.Range.Contains(h) {
			return scope{}, fault.New(fault.WrongPartition, "key %q belongs to partition %d, not %d; leave \"partition\" out",
				f.Keys[i], topology.Owner(t, h).Index, p.Index).With("field", "partition")
		}
	}
	if s.hashes == nil {
		s.rng = p.Range
	}
	s.only = &p.Index
	return s, nil
}
