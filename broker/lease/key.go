package lease

import (
	"slices"

	"tidewire/internal/ident"
)

// key is one key of which records failed.
type key struct {
	failed []ident.Offset // ascending
	held   []ident.Offset // available, and held back; some may have ended
}

// keyOf is what is known of an entry's key; nil: nothing of it failed.
func (m *Machine) keyOf(e *entry) *key {
	if !e.keyed {
		return nil
	}
	return m.keys[e.hash]
}

// holdBack notes that a record failed: later ones of its key wait for it.
func (m *Machine) holdBack(e *entry) {
	if !e.keyed || e.failed {
		return
	}
	if m.keys == nil {
		m.keys = map[uint32]*key{}
	}
	k := m.keys[e.hash]
	if k == nil {
		k = &key{}
		m.keys[e.hash] = k
	}
	e.failed = true
	i, _ := slices.BinarySearch(k.failed, e.offset)
	k.failed = slices.Insert(k.failed, i, e.offset)
}

// letGo notes that nobody has to wait for a record any more.
func (m *Machine) letGo(e *entry) {
	if !e.failed {
		return
	}
	e.failed = false
	k := m.keys[e.hash]
	i, _ := slices.BinarySearch(k.failed, e.offset)
	k.failed = slices.Delete(k.failed, i, i+1)
	if len(k.failed) == 0 {
		delete(m.keys, e.hash)
	} else if i > 0 {
		return // the first one still holds them back
	}
	for _, o := range k.held {
		if s := m.window.find(o); s != none && m.window.at(s).held {
			m.window.at(s).held = false
			m.ready.push(&m.window, s)
		}
	}
	k.held = nil
}
