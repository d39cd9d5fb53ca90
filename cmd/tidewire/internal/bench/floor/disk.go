package floor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tidewire/cmd/tidewire/internal/bench/figure"
)

// Disk is a loop of a write and an fdatasync of a file that has its blocks
// already, as a recycled journal has.
type Disk struct {
	Bytes     int             `json:"bytes"`   // of a write
	Records   int             `json:"records"` // that it stands for
	Seconds   float64         `json:"seconds"`
	Syncs     int64           `json:"syncs"`
	PerSecond float64         `json:"per_second"` // records
	Latency   *figure.Latency `json:"latency_us"` // of a write with its sync
}

// fileBytes is the file that is written over and over.
const fileBytes = 16 << 20

// MeasureDisk writes records of so many bytes to a folder, so many at once.
func MeasureDisk(ctx context.Context, dir string, bytes, records int, d time.Duration) (out Disk, err error) {
	out = Disk{Bytes: bytes * records, Records: records}
	if out.Bytes > fileBytes {
		return out, fmt.Errorf("a write of %d bytes is more than the %d this measures", out.Bytes, fileBytes)
	}
	f, err := os.CreateTemp(dir, "tidewire-bench-*.sync")
	if err != nil {
		return out, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() {
		f.Close()
		os.Remove(f.Name())
	}()
	if _, err := f.Write(make([]byte, fileBytes)); err != nil {
		return out, fmt.Errorf("fill %s: %w", filepath.Base(f.Name()), err)
	}
	if err := f.Sync(); err != nil {
		return out, fmt.Errorf("sync %s: %w", filepath.Base(f.Name()), err)
	}
	h, b, began := figure.NewHistogram(), make([]byte, out.Bytes), time.Now()
	for at := int64(0); time.Since(began) < d && ctx.Err() == nil; out.Syncs++ {
		if at+int64(len(b)) > fileBytes {
			at = 0
		}
		b[0]++
		start := time.Now()
		if _, err := f.WriteAt(b, at); err != nil {
			return out, fmt.Errorf("measure the disk: %w", err)
		}
		if err := syncData(f); err != nil {
			return out, fmt.Errorf("measure the disk: %w", err)
		}
		h.Record(int64(time.Since(start)))
		at += int64(len(b))
	}
	out.Seconds = time.Since(began).Seconds()
	out.PerSecond, out.Latency = float64(out.Syncs)*float64(records)/out.Seconds, h.Latency()
	return out, context.Cause(ctx)
}
