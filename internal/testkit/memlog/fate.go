package memlog

import "tidewire/internal/ident"

// Retain moves the log start up.
func (b *Broker) Retain(ref ident.Partition, start ident.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.logs[ref]; start > l.start && start <= ident.Offset(len(l.rows)) {
		l.start = start
		for len(l.batches) > 0 && l.batches[0].Header().Next() <= start {
			l.batches = l.batches[1:]
		}
	}
}

// All keeps every record in an election.
const All ident.Offset = 1 << 40

// Elect begins a new epoch. The new leader has whole batches before keep, and
// nothing else.
func (b *Broker) Elect(ref ident.Partition, keep ident.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.logs[ref]
	for len(l.batches) > 0 {
		last := l.batches[len(l.batches)-1].Header()
		if last.Next() <= keep || last.Base < l.start {
			break
		}
		l.batches = l.batches[:len(l.batches)-1]
		l.rows = l.rows[:last.Base]
	}
	for e, end := range l.ends {
		l.ends[e] = min(end, ident.Offset(len(l.rows)))
	}
	l.ends[l.epoch] = ident.Offset(len(l.rows))
	l.epoch++
	l.wakeLocked()
}

// Spoil damages a partition's log from an offset on.
func (b *Broker) Spoil(ref ident.Partition, from ident.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[ref].broken = from
}

// Serve says whether the partition has a leader that answers.
func (b *Broker) Serve(ref ident.Partition, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[ref].down = !up
	b.logs[ref].wakeLocked()
}
