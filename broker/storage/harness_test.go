package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// part names test partitions: the same number is the same partition.
func part(n int) ident.Partition {
	var p ident.Partition
	p.Topic[0], p.Topic[15] = 0xaa, byte(n/256)
	p.Topic[14] = byte(n % 256)
	p.Topic[6], p.Topic[8] = 0x40, 0x80
	p.Index = ident.Index(n)
	return p
}

// value makes content that names its place, so that a wrong record shows.
func value(p ident.Partition, o ident.Offset, bytes int) []byte {
	v := fmt.Appendf(nil, "%s@%d#", p, o)
	for i := 0; len(v) < bytes; i++ {
		v = binary.LittleEndian.AppendUint32(v, uint32(int(o)*31+i))
	}
	return v
}

// batch makes a batch of count records with checkable content.
func batch(p ident.Partition, epoch ident.Epoch, base ident.Offset, ms int64, count, bytes int) record.Batch {
	var b record.Builder
	for i := range count {
		b.Add(&record.Record{Value: value(p, base+ident.Offset(i), bytes), ContentType: "x/y"})
	}
	return place(b.Seal(), p, epoch, base, ms)
}

// voids makes a batch that occupies no offset.
func voids(p ident.Partition, epoch ident.Epoch, base ident.Offset, ms int64, sequence int64) record.Batch {
	var b record.Builder
	b.Void(ident.ProducerID{1, 2, 3}, sequence)
	return place(b.Seal(), p, epoch, base, ms)
}

func place(b record.Batch, p ident.Partition, epoch ident.Epoch, base ident.Offset, ms int64) record.Batch {
	b.Assign(record.Place{Partition: p, Epoch: epoch, Base: base, Timestamp: ms})
	return b
}

// checkBatches holds what a read gave against what was written.
func checkBatches(raw []byte, p ident.Partition, from ident.Offset) (next ident.Offset, err error) {
	next = from
	for first := true; len(raw) > 0; first = false {
		b, rest, err := record.Cut(raw)
		if err != nil {
			return next, err
		}
		raw = rest
		if err := b.Verify(); err != nil {
			return next, err
		}
		h := b.Header()
		if h.Partition != p || first && (h.Base > from || h.Next() <= from) || !first && h.Base != next {
			return next, fmt.Errorf("%s, offset %d to %d in place of offset %d of %s", h.Partition, h.Base, h.Next(), next, p)
		}
		it := b.Entries()
		for it.Next() {
			e := it.Entry()
			o := h.Base + ident.Offset(e.Delta)
			if want := value(p, o, len(e.Value)); string(e.Value) != string(want) {
				return next, fmt.Errorf("offset %d of %s holds %q", o, p, clip(e.Value))
			}
		}
		if it.Err() != nil {
			return next, it.Err()
		}
		next = h.Next()
	}
	return next, nil
}

func clip(b []byte) []byte { return b[:min(len(b), 64)] }

// readAll reads a log from its start to its end, or to an error.
func readAll(l *Log, maxBytes int) (next ident.Offset, err error) {
	next = l.Start()
	for next < l.End() {
		raw, err := l.Read(next, l.End(), maxBytes)
		if err != nil {
			return next, err
		}
		if len(raw) == 0 {
			return next, fmt.Errorf("nothing at offset %d of %s, which ends at %d", next, l.part, l.End())
		}
		if next, err = checkBatches(raw, l.part, next); err != nil {
			return next, err
		}
	}
	return next, nil
}

// running is a store with its Run.
type running struct {
	*Store
	stop context.CancelFunc
	done chan error
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run(s)
}

func run(s *Store) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{s, stop, make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	return r
}

func (r *running) close() error {
	r.stop()
	return <-r.done
}

func (r *running) mustClose(t testing.TB) {
	t.Helper()
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

func (r *running) mustLog(t testing.TB, p ident.Partition, cfg LogConfig) *Log {
	t.Helper()
	l, err := r.Log(p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// put appends a batch and waits until it is durable.
func put(l *Log, epoch ident.Epoch, ms int64, count, bytes int) error {
	done := make(chan error, 1)
	if err := l.Append(batch(l.part, epoch, l.End(), ms, count, bytes), nil, func(err error) { done <- err }); err != nil {
		done <- err
	}
	return <-done
}

func mustPut(t testing.TB, l *Log, epoch ident.Epoch, ms int64, count, bytes int) {
	t.Helper()
	if err := put(l, epoch, ms, count, bytes); err != nil {
		t.Fatal(err)
	}
}

// small is a configuration in which everything happens soon.
func small(dir string) Config {
	return Config{
		Dir: dir, JournalFileBytes: 16 << 10, FlushBytes: 512, FlushAge: 20 * time.Millisecond,
		IndexBytes: 256, OpenFiles: 4, MinFreeBytes: 1, IdleMark: 10 * time.Millisecond, RetrySpace: 10 * time.Millisecond,
	}
}
