package deliver

// Totals counts the messages, and their bytes, written to readers since the
// start.
func (m *Metrics) Totals() (messages, bytes int64) {
	return m.messages.Load(), m.bytes.Load()
}

// Taken is the number of connections that are seated now.
func (s *Seats) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Moves is the number of connections that have come or gone since the start.
func (s *Seats) Moves() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves
}
