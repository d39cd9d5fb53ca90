package storage

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker/journal"
)

// metrics of a data folder.
type metrics struct {
	appendBytes prometheus.Counter
	fsync       prometheus.Histogram
	group       prometheus.Histogram
	corruption  prometheus.Counter
	scrubs      prometheus.Counter
	scrubbed    prometheus.Counter
}

// newMetrics registers them; without a registerer they count all the same.
func newMetrics(r prometheus.Registerer, s *Store) (*metrics, error) {
	m := &metrics{
		appendBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_append_bytes_total", Help: "Bytes of batches that became durable.",
		}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_journal_fsync_seconds", Help: "Time of a journal fsync.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		group: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_journal_group_entries", Help: "Batches that shared one journal fsync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
	}
	m.corruption = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "storage_corruption_total", Help: "Places in logs that were found damaged.",
	})
	m.scrubs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "storage_scrub_passes_total", Help: "Times that all segments were read again and checked.",
	})
	m.scrubbed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "storage_scrub_bytes_total", Help: "Bytes of segments that were read again and checked.",
	})
	if r == nil {
		return m, nil
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.appendBytes, m.fsync, m.group, m.corruption, m.scrubs, m.scrubbed,
		gauge("broker_open_files", "Open segment files.", func() float64 { return float64(s.files.open()) }),
		gauge("broker_unflushed_bytes", "Bytes that are in the journal but not in their segment yet.", func() float64 { return float64(s.unflushed.Load()) }),
		gauge("broker_damaged_partitions", "Partitions of which something that was kept cannot be read.", func() float64 { return float64(s.damagedLogs()) }),
		gauge("broker_read_only", "1: the data folder is damaged and takes nothing new.", func() float64 {
			if s.readOnly != nil {
				return 1
			}
			return 0
		}),
		gauge("broker_disk_free_bytes", "Free space of the data folder.", func() float64 { return float64(s.Free()) }),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// damagedLogs counts the logs that are known to be damaged.
func (s *Store) damagedLogs() (n int) {
	for _, l := range s.allLogs() {
		if l.Damage() != nil {
			n++
		}
	}
	return n
}

func (m *metrics) appended(bytes int) { m.appendBytes.Add(float64(bytes)) }

func (m *metrics) committed(c journal.Commit) {
	m.fsync.Observe(c.Sync.Seconds())
	if c.Entries > 0 {
		m.group.Observe(float64(c.Entries))
	}
}
