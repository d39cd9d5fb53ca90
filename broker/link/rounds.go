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
	r.ups = streams(l, l.up, r.ups)
	for _, u := range r.ups {
		u.sweep()
	}
	l.sweepDown()
}

func (l *Links) sweepDown() {
	r := &l.rounds
	r.downs = streams(l, l.down, r.downs)
	for _, d := range r.downs {
		d.sweep(r.small)
	}
}

// streams lists those of one direction in what was the list before, so that nobody is swept
// with the lock held and a round allocates nothing.
func streams[K comparable, S any](l *Links, of map[K]S, list []S) []S {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list = list[:0]
	for _, s := range of {
		list = append(list, s)
	}
	return list
}
