package faultfs

import "math/rand/v2"

// sectorBytes is what a disk writes at once, or tears.
const sectorBytes = 512

// KillClone gives the file system as the sudden death of the process leaves it:
// everything written is there, but what was not synced still is not.
func (m *Memory) KillClone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := map[*node]*node{}
	clone := &Memory{root: copyNode(m.root, nodes), capacity: m.capacity, used: m.used, locks: map[string]bool{}}
	for _, op := range m.pending {
		c := dirOp{needs: map[*node]bool{}}
		for _, s := range op.sets {
			s.dir = copyNode(s.dir, nodes)
			if s.to != nil {
				s.to = copyNode(s.to, nodes)
			}
			c.sets = append(c.sets, s)
		}
		for n := range op.needs {
			c.needs[copyNode(n, nodes)] = true
		}
		clone.pending = append(clone.pending, c)
	}
	return clone
}

func copyNode(n *node, nodes map[*node]*node) *node {
	if c := nodes[n]; c != nil {
		return c
	}
	c := &node{}
	nodes[n] = c
	if n.entries == nil {
		c.data = append([]byte(nil), n.data...)
		c.synced = append([]byte(nil), n.synced...)
		c.writes = append([]write(nil), n.writes...)
		return c
	}
	c.entries, c.durable = map[string]*node{}, map[string]*node{}
	for name, e := range n.entries {
		c.entries[name] = copyNode(e, nodes)
	}
	for name, e := range n.durable {
		c.durable[name] = copyNode(e, nodes)
	}
	return c
}

// CrashClone gives the disk as a power cut at this moment may leave it; r
// decides. Everything in the clone is durable.
func (m *Memory) CrashClone(r *rand.Rand) *Memory {
	c := m.KillClone()
	// Lost and kept directory operations: each for itself, but in order. Now
	// and then nothing or everything was lucky, as the extremes find other bugs.
	keep := lucky(r)
	for _, op := range c.pending {
		if keep(r) {
			for _, s := range op.sets {
				apply(s.dir.durable, s)
			}
		}
	}
	c.pending = nil
	seen := map[*node]bool{}
	c.used = 0
	c.settle(c.root, r, seen)
	return c
}

// lucky draws how likely a change is kept.
func lucky(r *rand.Rand) func(*rand.Rand) bool {
	switch r.IntN(4) {
	case 0:
		return func(*rand.Rand) bool { return false }
	case 1:
		return func(*rand.Rand) bool { return true }
	}
	return func(r *rand.Rand) bool { return r.IntN(2) == 0 }
}

func (m *Memory) settle(n *node, r *rand.Rand, seen map[*node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	if n.entries == nil {
		n.crash(r)
		m.used += int64(len(n.data))
		return
	}
	n.entries = map[string]*node{}
	for _, name := range sortedNames(n.durable) { // in order, so that a seed repeats
		e := n.durable[name]
		n.entries[name] = e
		m.settle(e, r, seen)
	}
}

// crash makes the contents what a power cut leaves of them.
func (n *node) crash(r *rand.Rand) {
	if len(n.writes) > 0 {
		n.synced = mix(n.synced, n.writes, r)
	}
	n.data = append([]byte(nil), n.synced...)
	n.writes = nil
}

// mix gives every sector some state it had since the last sync.
func mix(synced []byte, writes []write, r *rand.Rand) []byte {
	// The states after each write; the size is that of one of them.
	states := [][]byte{synced}
	cur := append([]byte(nil), synced...)
	for _, w := range writes {
		cur = patch(append([]byte(nil), cur...), w)
		states = append(states, cur)
	}
	last := len(states) - 1
	pick := func() int {
		switch r.IntN(3) {
		case 0:
			return 0
		case 1:
			return last
		}
		return r.IntN(last + 1)
	}
	if r.IntN(8) == 0 { // all in one piece
		return append([]byte(nil), states[pick()]...)
	}
	out := make([]byte, len(states[pick()]))
	for off := 0; off < len(out); off += sectorBytes {
		end := min(off+sectorBytes, len(out))
		k := pick()
		fill(out[off:end], states[k], off)
		if k < last && r.IntN(4) == 0 { // torn: the next state reached a part of it
			cut := off + r.IntN(end-off)
			fill(out[off:cut], states[k+1], off)
		}
	}
	return out
}

// fill copies a part of a state; beyond its end there are zeros.
func fill(out, state []byte, off int) {
	clear(out)
	if off < len(state) {
		copy(out, state[off:])
	}
}
