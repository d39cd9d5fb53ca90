package floor_test

import (
	"context"
	"os"
	"testing"
	"time"

	"tidewire/cmd/tidewire/internal/bench/floor"
)

func TestTheDiskIsMeasuredAndLeftAsItWas(t *testing.T) {
	dir := t.TempDir()
	d, err := floor.MeasureDisk(t.Context(), dir, 1024, 8, 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if d.Bytes != 8192 || d.Syncs < 1 || d.PerSecond < float64(8*d.Syncs) || d.Latency == nil {
		t.Errorf("%+v", d)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := floor.MeasureDisk(t.Context(), dir, 1<<20, 1000, time.Second); err == nil {
		t.Error("a write larger than the file is taken")
	}
	if _, err := floor.MeasureDisk(t.Context(), dir+"/missing", 1024, 1, time.Second); err == nil {
		t.Error("a folder that is not there is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := floor.MeasureDisk(ctx, dir, 1024, 1, time.Hour); err == nil {
		t.Error("an end that was asked for is no figure")
	}
}
