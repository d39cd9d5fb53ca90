package deliver

// Totals counts the messages, and their bytes, written to readers since the
// start.
func (m *Metrics) Totals() (messages, bytes int64) {
	return m.messages.Load(), m.bytes.Load()
}
