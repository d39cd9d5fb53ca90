package floor_test

import (
	"context"
	"os"
	"testing"
	"time"

	"tidewire/internal/bench/floor"
)

func TestTheDiskIsMeasuredAndLeftAsItWas(t *testing.T) {
	dir := t.TempDir()
	d, err := floor.MeasureDisk(t.Context(), dir, floor.Write{Bytes: 1024, Records: 8, Files: 3}, 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if d.Bytes != 8192 || d.PerSecond <= 0 || d.Latency == nil {
		t.Errorf("%+v", d)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := floor.MeasureDisk(t.Context(), dir, floor.Write{Bytes: 1 << 20, Records: 1000, Files: 1}, time.Second); err == nil {
		t.Error("a write larger than the file is taken")
	}
	if _, err := floor.MeasureDisk(t.Context(), dir+"/missing", floor.Write{Bytes: 1024, Records: 1, Files: 1}, time.Second); err == nil {
		t.Error("a folder that is not there is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := floor.MeasureDisk(ctx, dir, floor.Write{Bytes: 1024, Records: 1, Files: 1}, time.Hour); err == nil {
		t.Error("an end that was asked for is no figure")
	}
}
