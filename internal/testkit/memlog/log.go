package memlog

import (
	"fmt"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// log is one partition.
type log struct {
	batches []record.Batch
	rows    []row // by offset, also of what retention took
	start   ident.Offset
	epoch   ident.Epoch
	ends    map[ident.Epoch]ident.Offset
	down    bool
	broken  ident.Offset // not 0: from here on nothing can be read
	changed chan struct{}
}

type row struct {
	key string
	ms  int64
}

func newLog() *log {
	return &log{epoch: 1, ends: map[ident.Epoch]ident.Offset{}, changed: make(chan struct{})}
}

func (l *log) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Void in place of a key is no record: a producer's number is used up.
const Void = "void"

// Append keeps one batch with a record a key; the key "" is none. The value
// tells the record's place: {"n": offset, "of": partition}.
func (b *Broker) Append(ref ident.Partition, keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.logs[ref]
	var batch record.Builder
	var kept []string
	for _, k := range keys {
		if k == Void {
			batch.Void(ident.ProducerID{9}, 1)
			continue
		}
		value := fmt.Appendf(nil, `{"n":%d, "of": %d}`, len(l.rows)+len(kept), ref.Index)
		batch.Add(&record.Record{ContentType: record.JSON, Key: keyOf(k), Value: value})
		kept = append(kept, k)
	}
	b.keepLocked(ref, batch.Seal(), kept)
}

// AppendValue keeps a batch of one record.
func (b *Broker) AppendValue(ref ident.Partition, key, value string) {
	b.AppendRecord(ref, &record.Record{ContentType: record.JSON, Key: keyOf(key), Value: []byte(value)})
}

// AppendRecord keeps a batch of one record, and says where and when.
func (b *Broker) AppendRecord(ref ident.Partition, r *record.Record) (o ident.Offset, ms int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch record.Builder
	batch.Add(r)
	o = ident.Offset(len(b.logs[ref].rows))
	b.keepLocked(ref, batch.Seal(), []string{string(r.Key)})
	return o, b.lastMs
}

func keyOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func (b *Broker) keepLocked(ref ident.Partition, batch record.Batch, keys []string) {
	l := b.logs[ref]
	b.lastMs++
	batch.Assign(record.Place{Partition: ref, Epoch: l.epoch, Base: ident.Offset(len(l.rows)), Timestamp: b.lastMs})
	l.batches = append(l.batches, batch)
	for _, k := range keys {
		l.rows = append(l.rows, row{k, b.lastMs})
	}
	l.wakeLocked()
}

// Keys are the keys of all records that the partition has or had, by offset,
// and the log start.
func (b *Broker) Keys(ref ident.Partition) (keys []string, start ident.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.logs[ref]
	keys = make([]string, len(l.rows))
	for o, r := range l.rows {
		keys[o] = r.key
	}
	return keys, l.start
}
