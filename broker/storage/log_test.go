package storage

import (
	"testing"

	"tidewire/internal/ident"
)

func TestLogKeepsWhatWasAppendedThroughRestarts(t *testing.T) {
	cfg := small(t.TempDir())
	const parts, rounds = 5, 4
	var ends [parts]ident.Offset
	for round := range rounds {
		s := start(t, cfg)
		if got := len(s.Found()); round > 0 && got != parts {
			t.Fatalf("round %d: %d partitions found, want %d", round, got, parts)
		}
		for n := range parts {
			l := s.mustLog(t, part(n), LogConfig{SegmentBytes: 2 << 10})
			if l.End() != ends[n] {
				t.Fatalf("round %d: log %d ends at %d, want %d", round, n, l.End(), ends[n])
			}
			for i := range 30 {
				mustPut(t, l, ident.Epoch(round+1), int64(1000*round+i), 1+i%4, 40)
			}
			ends[n] = l.End()
			if next, err := readAll(l, 1000); err != nil || next != ends[n] {
				t.Fatalf("log %d reads to %d, want %d: %v", n, next, ends[n], err)
			}
		}
		s.mustClose(t)
	}
	s := start(t, cfg)
	defer s.mustClose(t)
	for n := range parts {
		l := s.mustLog(t, part(n), LogConfig{})
		for e := ident.Epoch(1); e <= rounds; e++ {
			if got, end := l.EpochEnd(e); got != e || end != ends[n]/rounds*ident.Offset(e) {
				t.Errorf("log %d: epoch %d ends at %d as epoch %d, want %d", n, e, end, got, ends[n]/rounds*ident.Offset(e))
			}
		}
		if next, err := readAll(l, 1); err != nil || next != ends[n] {
			t.Errorf("log %d reads to %d, want %d: %v", n, next, ends[n], err)
		}
	}
}
