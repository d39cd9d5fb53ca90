package storage

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// Thousands of partitions start quickly and cost next to nothing while idle.
func TestManyPartitionsStartQuicklyAndRestCheaply(t *testing.T) {
	parts := 1000
	if testing.Short() {
		parts = 200
	}
	cfg := Config{Dir: t.TempDir(), MinFreeBytes: 1}
	s := start(t, cfg)
	pending := make(chan error, parts)
	for n := range parts {
		l := s.mustLog(t, part(n), LogConfig{})
		if err := l.Append(batch(l.part, 1, 0, 1, 1, 100), nil, func(err error) { pending <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range parts {
		if err := <-pending; err != nil {
			t.Fatal(err)
		}
	}
	s.mustClose(t)

	began := time.Now()
	s = start(t, cfg)
	took := time.Since(began)
	if n := len(s.Found()); n != parts {
		t.Fatalf("%d partitions found of %d", n, parts)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if limit := 10 * time.Second; took > limit { // generous: the machine may be busy, and -race is on
		t.Errorf("the start took %s", took)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err == nil && s.files.open() > 0 {
		t.Errorf("idle partitions hold %d files open, %d descriptors in all", s.files.open(), len(fds))
	}
	for n := range parts {
		l := s.mustLog(t, part(n), LogConfig{})
		if raw, err := l.Read(0, 1, 10); err != nil || len(raw) == 0 {
			t.Fatal(n, err)
		}
	}
	if n := s.files.open(); n > 1000 {
		t.Errorf("%d files are open, 1,000 are allowed", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("start of %d partitions: %s; %d bytes of heap a partition", parts, took, int64(after.HeapAlloc)/int64(parts))
	s.mustClose(t)
}
