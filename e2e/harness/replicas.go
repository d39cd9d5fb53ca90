package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"tidewire/broker/storage"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Replica is the log of one partition in one data folder.
type Replica struct {
	Dir     string
	Start   ident.Offset
	End     ident.Offset
	Batches []record.Batch // from Start on
}

// Replicas reads every log of data folders whose nodes do not run. Each folder is
// copied, for opening one recovers it; nothing of a copy is to last.
func Replicas(t testing.TB, dirs ...string) map[ident.Partition][]Replica {
	t.Helper()
	all := map[ident.Partition][]Replica{}
	for _, dir := range dirs {
		copied := t.TempDir()
		CopyDir(t, dir, copied)
		store, err := storage.Open(storage.Config{Dir: copied, FS: fleeting{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatalf("open a copy of %s: %v", dir, err)
		}
		for _, p := range store.Found() {
			l, err := store.Log(p, storage.LogConfig{})
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			r := Replica{Dir: dir, Start: l.Start(), End: l.End()}
			err = l.Fold(l.Start(), func(b record.Batch) error {
				r.Batches = append(r.Batches, bytes.Clone(b))
				return nil
			})
			if err != nil {
				t.Fatalf("%s, partition %v: %v", dir, p, err)
			}
			all[p] = append(all[p], r)
		}
		over, end := context.WithCancel(t.Context())
		end()
		if err := store.Run(over); err != nil { // it closes what is open
			t.Fatal(err)
		}
		EmptyDir(t, copied)
	}
	return all
}

// SameReplicas wants the logs of each partition to be the same bytes in all
// folders that have it, and says how much was compared.
func SameReplicas(t testing.TB, replicas map[ident.Partition][]Replica) {
	t.Helper()
	compared, size := 0, 0
	for p, rs := range replicas {
		for _, r := range rs[1:] {
			if err := sameLog(rs[0], r); err != nil {
				t.Errorf("partition %v: %v", p, err)
			}
		}
		if len(rs) > 1 {
			compared++
		}
		for _, b := range rs[0].Batches {
			size += len(b)
		}
	}
	if compared == 0 {
		t.Error("no partition is in two folders: this proves nothing")
	}
	t.Logf("%d partitions compared byte by byte, %d bytes each replica", compared, size)
}

// sameLog compares two logs from where both begin on; retention may have been to
// one first.
func sameLog(a, b Replica) error {
	if a.End != b.End {
		return fmt.Errorf("%s ends at %d, %s at %d", a.Dir, a.End, b.Dir, b.End)
	}
	start := max(a.Start, b.Start)
	x, y := a.from(start), b.from(start)
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			return fmt.Errorf("batch %d differs: %+v in %s, %+v in %s", i, x[i].Header(), a.Dir, y[i].Header(), b.Dir)
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("%s has %d batches from %d on, %s has %d", a.Dir, len(x), start, b.Dir, len(y))
	}
	return nil
}

func (r Replica) from(start ident.Offset) []record.Batch {
	for i, b := range r.Batches {
		if b.Header().Base >= start {
			return r.Batches[i:]
		}
	}
	return nil
}
