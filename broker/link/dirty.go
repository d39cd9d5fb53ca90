package link

import (
	"sync"

	"tidewire/internal/ident"
)

// dirty is the partitions that have something to say, each once, in the order in
// which they said so. It holds at most as many names as there are partitions.
type dirty struct {
	wake chan struct{} // room for one: there is something

	mu    sync.Mutex
	now   bool // something is a reason to send
	in    map[ident.Partition]bool
	order []ident.Partition
}

func newDirty() *dirty {
	return &dirty{wake: make(chan struct{}, 1), in: map[ident.Partition]bool{}}
}

func (d *dirty) mark(p ident.Partition) {
	d.due(p)
	d.rouse()
}

// due is mark for who sees to it that somebody comes.
func (d *dirty) due(p ident.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = true
	d.noteLocked(p)
}

// pressing says that there is a reason to send.
func (d *dirty) pressing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// note is mark for what is no reason to send: whoever sends something takes it along.
func (d *dirty) note(p ident.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noteLocked(p)
}

func (d *dirty) noteLocked(p ident.Partition) {
	if !d.in[p] {
		d.in[p] = true
		d.order = append(d.order, p)
	}
}

func (d *dirty) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take gives all that are marked, into the room of what was taken before.
func (d *dirty) take(room []ident.Partition) []ident.Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.order
	d.order, d.now = room[:0], false
	clear(d.in)
	return taken
}
