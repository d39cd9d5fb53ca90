package link

// smallBytes is how much a commit of the journal has at most where its goroutine sends what
// comes of it. More is worth a goroutine beside it.
const smallBytes = 64 << 10

// rounds is what the journal's goroutine alone touches.
type rounds struct {
	small bool // the commits in hand
	downs []*downstream
	ups   []*upstream
}

// Taken is of journal.Rounds: what was appended goes to the followers while it is written
// here.
func (l *Links) Taken(bytes int) {
	l.rounds.small = bytes <= smallBytes
	l.sweepDown()
}

// Told is of journal.Rounds: leaders hear at once of all that a commit has brought.
func (l *Links) Told() {
	r := &l.rounds
	l.mu.RLock()
	r.ups = r.ups[:0]
	for _, u := range l.up {
		r.ups = append(r.ups, u)
	}
	l.mu.RUnlock()
	for _, u := range r.ups {
		u.sweep()
	}
	l.sweepDown()
}

func (l *Links) sweepDown() {
	r := &l.rounds
	l.mu.RLock()
	r.downs = r.downs[:0]
	for _, d := range l.down {
		r.downs = append(r.downs, d)
	}
	l.mu.RUnlock()
	for _, d := range r.downs {
		d.sweep(r.small)
	}
}
