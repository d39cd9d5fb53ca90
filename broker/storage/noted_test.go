package storage

import (
	"slices"
	"testing"
	"testing/synctest"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

// A life that has found damage may end before anybody heard of it. The next one knows it
// from the start, without reading all there is; and once the log is begun anew, or what is
// damaged has gone, it is not held against it.
func TestDamageThatWasFoundIsKnownInTheNextLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		s := start(t, patient(disk))
		var second func() // changes a bit of the second log
		for _, n := range []int{1, 2, 3} {
			l := s.mustLog(t, part(n), LogConfig{SegmentBytes: 200})
			for range 6 {
				mustPut(t, l, 1, 1, 2, 60)
			}
			if err := s.checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			rotten := l.segs[0]
			l.mu.Unlock()
			change := func() { spoil(t, disk, l.path(rotten.base, segmentSuffix), int(rotten.bytes)-20) }
			if change(); n == 2 {
				second = change
			}
		}
		damaged := func(s *running, want ...ident.Partition) {
			t.Helper()
			if got := s.Damaged(); !slices.Equal(got, want) {
				t.Fatalf("damaged are %v, not %v", got, want)
			}
		}
		next := func(note bool) {
			t.Helper()
			if note {
				if err := s.NoteDamage(); err != nil {
					t.Fatal(err)
				}
			}
			killed := disk.KillClone()
			s.mustClose(t)
			disk = killed
			s = reopen(t, killed)
		}
		if err := s.ScrubNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		damaged(s, part(1), part(2), part(3))
		next(true)
		damaged(s, part(1), part(2), part(3))
		if err := s.Replace(part(1)); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s.mustLog(t, part(1), LogConfig{}), 1, 1, 9, 60)
		second()    // as somebody brings a file back
		next(false) // as it was noted before
		damaged(s, part(3))
		next(true)
		damaged(s, part(3))
		s.mustClose(t)
	})
}
