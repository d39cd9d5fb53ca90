package floor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/bench/figure"
)

// Write is what is written and synced again and again.
type Write struct {
	Bytes   int // of a record
	Records int // in one write
	// Files are written and synced at once, each the same records: what nodes do that
	// share a disk and keep copies.
	Files int
}

// Disk is a loop of writes and fdatasyncs of files that have their blocks already, as
// a recycled journal has.
type Disk struct {
	Bytes     int             // of a write
	PerSecond float64         // records
	Latency   *figure.Latency // of the writes of all files with their syncs
}

// fileBytes is a file that is written over and over.
const fileBytes = 16 << 20

// MeasureDisk writes to files of its own in a folder for so long.
func MeasureDisk(ctx context.Context, dir string, w Write, d time.Duration) (out Disk, err error) {
	out = Disk{Bytes: w.Bytes * w.Records}
	if out.Bytes > fileBytes {
		return out, fmt.Errorf("a write of %d bytes is more than the %d this measures", out.Bytes, fileBytes)
	}
	files := make([]*scratch, w.Files)
	for i := range files {
		if files[i], err = newScratch(dir, out.Bytes); err != nil {
			return out, err
		}
		defer files[i].remove()
	}
	h, began, rounds := figure.NewHistogram(), time.Now(), 0
	for ; time.Since(began) < d && ctx.Err() == nil; rounds++ {
		start := time.Now()
		if err := writeAll(files); err != nil {
			return out, fmt.Errorf("measure the disk: %w", err)
		}
		h.Record(int64(time.Since(start)))
	}
	out.PerSecond, out.Latency = float64(rounds*w.Records)/time.Since(began).Seconds(), h.Latency()
	return out, context.Cause(ctx)
}

func writeAll(files []*scratch) error {
	if len(files) == 1 {
		return files[0].write()
	}
	var g errgroup.Group
	for _, f := range files {
		g.Go(f.write)
	}
	return g.Wait()
}

// scratch is a file that is written over and over.
type scratch struct {
	*os.File
	b  []byte
	at int64
}

func newScratch(dir string, bytes int) (*scratch, error) {
	f, err := os.CreateTemp(dir, "tidewire-bench-*.sync")
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	s := &scratch{File: f, b: make([]byte, bytes)}
	if _, err = f.Write(make([]byte, fileBytes)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("fill %s: %w", filepath.Base(f.Name()), err)
	}
	return s, nil
}

func (s *scratch) write() error {
	if s.at+int64(len(s.b)) > fileBytes {
		s.at = 0
	}
	s.b[0]++
	if _, err := s.WriteAt(s.b, s.at); err != nil {
		return err
	}
	s.at += int64(len(s.b))
	return syncData(s.File)
}

func (s *scratch) remove() {
	s.Close()
	os.Remove(s.Name())
}
