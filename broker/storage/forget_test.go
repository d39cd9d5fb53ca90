package storage

import (
	"bytes"
	"testing"
	"testing/synctest"

	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// A log that was begun with the producers as of a place behind its end may be all there is,
// after an unclean election. What it was told of producers is of records that are lost: it
// says nothing of them once it is forgotten, however far the log grows and whenever the
// power fails. And whoever begins where this log does has something to begin with.
func TestAForgottenProducerStateNeverComesBack(t *testing.T) {
	for _, name := range []string{"at once", "from a checkpoint", "after growing past it"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.New(0)
				s := start(t, patient(disk))
				l := s.mustLog(t, part(1), LogConfig{})
				if err := l.Restart(record.At(100), stateAt(110), 110); err != nil {
					t.Fatal(err)
				}
				mustPut(t, l, 1, 1, 4, 60)
				if at, _ := l.Recovered(); at != 110 {
					t.Fatalf("it begins as of %d", at)
				}
				if err := l.Forget(func(error) {}); err != nil {
					t.Fatal(err)
				}
				if name == "from a checkpoint" {
					if err := s.checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for name == "after growing past it" && l.End() < 120 {
					mustPut(t, l, 1, 1, 4, 60)
				}
				mustPut(t, l, 1, 1, 1, 60) // durable, and so is what comes before
				end := l.End()
				check := func(l *Log) {
					t.Helper()
					if at, state := l.Recovered(); at != 100 || len(state) > 0 || l.End() != end {
						t.Errorf("it ends at %d and begins with %q as of %d", l.End(), state, at)
					}
					if at, state, ok := l.ProducersUpTo(l.Committed()); !ok || at != 100 || len(state) > 0 {
						t.Errorf("committed up to %d; who begins with it is given %q as of %d: %v", l.Committed(), state, at, ok)
					}
				}
				check(l)
				killed := disk.KillClone()
				s.mustClose(t)
				s = reopen(t, killed)
				check(s.mustLog(t, part(1), LogConfig{}))
				s.mustClose(t)
			})
		})
	}
}

// An unclean election may cut a log below all that it knows of producers.
func TestALogThatIsCutBelowItsProducersKnowsOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		s := start(t, patient(disk))
		l := owned(t, s, LogConfig{SegmentBytes: 200})
		for range 10 {
			mustPut(t, l, 1, 1, 2, 60)
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second time what the first has kept is committed
			if err := l.SetStart(8, 20); err != nil {
				t.Fatal(err)
			}
		}
		if l.Start() != 8 {
			t.Fatalf("it starts at %d", l.Start())
		}
		if err := l.TruncateTo(record.At(10)); err != nil {
			t.Fatal(err)
		}
		check := func(l *Log) {
			t.Helper()
			if at, state, ok := l.ProducersUpTo(l.Committed()); !ok || at != 8 || !bytes.Equal(state, nil) || l.Committed() > 10 {
				t.Errorf("committed up to %d: %q as of %d, %v", l.Committed(), state, at, ok)
			}
		}
		check(l)
		killed := disk.KillClone()
		s.mustClose(t)
		s = reopen(t, killed)
		check(s.mustLog(t, part(1), LogConfig{}))
		s.mustClose(t)
	})
}
