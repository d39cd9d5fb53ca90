package mailbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/inbox"
)

func (m *Mailbox) newMetrics() {
	gauge := func(name, help string, value func(*inbox.Box) float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return value(m.box)
		})
	}
	m.entries = gauge("broker_mailbox_entries", "Requests whose gateway is gone, with a reply here or somebody who waits for it.", func(b *inbox.Box) float64 { return float64(b.Entries()) })
	m.bytes = gauge("broker_mailbox_bytes", "Replies that are kept here for requests whose gateway is gone.", func(b *inbox.Box) float64 { return float64(b.Bytes()) })
	m.kept = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "broker_mailbox_replies_total", Help: "Replies that came to the mailbox, by what became of them: kept, second (there was one), full (there was no room).",
	}, []string{"result"})
}

// Register shows what there is to count.
func (m *Mailbox) Register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	return errors.Join(reg.Register(m.entries), reg.Register(m.bytes), reg.Register(m.kept))
}
