package storage

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// stateAt is what the owner of a log remembers of what lies below an offset.
func stateAt(o ident.Offset) []byte { return fmt.Append(nil, "producers at ", o) }

// owned opens a log whose owner remembers producers.
func owned(t testing.TB, s *running, cfg LogConfig) *Log {
	t.Helper()
	l := s.mustLog(t, part(1), cfg)
	l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), stateAt(l.End()) })
	return l
}

// begins checks that whoever begins where a log does finds the producers as of a place
// that is known to be committed.
func begins(l *Log) error {
	start, committed := l.Start(), l.Committed()
	if start == 0 {
		return nil
	}
	at, state, ok := l.ProducersUpTo(committed)
	if !ok || at < start || at > committed || !bytes.Equal(state, stateAt(at)) {
		return fmt.Errorf("the log starts at %d and is committed up to %d: producers %q as of %d, %v; kept %v, ends at %d", start, committed, state, at, ok, l.snaps, l.End())
	}
	return nil
}

// A follower's start follows its leader's while its log goes on behind what is committed.
// The next leader may lack that: cut back to there, it still knows what the dropped
// records said of producers.
func TestProducersOutliveACutToWhatIsCommitted(t *testing.T) {
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
		const hw = 12
		if err := l.SetStart(8, hw); err != nil || l.Start() != 0 {
			t.Fatalf("it starts at %d before any producers are kept as of what is committed: %v", l.Start(), err)
		}
		if err := l.SetStart(14, hw); err != nil || l.Start() != 0 {
			t.Fatalf("it starts at %d, behind what is committed: %v", l.Start(), err)
		}
		if err := l.SetStart(8, 20); err != nil || l.Start() != 8 || l.Committed() != 20 {
			t.Fatalf("it starts at %d, committed up to %d: %v", l.Start(), l.Committed(), err)
		}
		for range 5 {
			mustPut(t, l, 1, 1, 2, 60)
		}
		if err := l.flush(); err != nil {
			t.Fatal(err)
		}
		if err := l.SetStart(18, 20); err != nil || l.Start() != 18 {
			t.Fatalf("it starts at %d: %v", l.Start(), err)
		}
		if err := l.TruncateTo(record.At(20)); err != nil {
			t.Fatal(err)
		}
		check := func(l *Log) {
			t.Helper()
			if at, state := l.Recovered(); at != 20 || !bytes.Equal(state, stateAt(20)) {
				t.Errorf("it begins with %q as of %d", state, at)
			}
			if err := begins(l); err != nil || l.Committed() != 20 {
				t.Errorf("committed up to %d: %v", l.Committed(), err)
			}
		}
		check(l)
		killed := disk.KillClone()
		s.mustClose(t)
		s = reopen(t, killed)
		check(owned(t, s, LogConfig{SegmentBytes: 200}))
		s.mustClose(t)
	})
}

// Whatever happens to a log, at every moment and after every death whoever begins where
// it does finds the producers; and what is over goes all the same.
func TestThereAreAlwaysProducersToBeginWith(t *testing.T) {
	moved, cut, waited := 0, 0, 0
	from, to := seeds(t, 60)
	for seed := from; seed < to; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := seeded(seed)
			disk := faultfs.New(0)
			var hw, committed ident.Offset
			life := func() {
				cfg := patient(disk)
				cfg.FlushAge, cfg.CheckpointBytes = time.Duration(1+r.IntN(100))*time.Millisecond, 1<<10<<r.IntN(8)
				s := start(t, cfg)
				defer s.mustClose(t)
				l := owned(t, s, LogConfig{SegmentBytes: 1 + r.Int64N(800), RetentionBytes: 1500})
				step := func(what string, err error) {
					t.Helper()
					if err == nil {
						err = begins(l)
					}
					if err != nil {
						t.Fatalf("seed %d: %s: %v", seed, what, err)
					}
				}
				step("start", nil)
				if l.Committed() > max(committed, l.Start()) {
					t.Fatalf("seed %d: committed up to %d, it was %d", seed, l.Committed(), committed)
				}
				hw = max(min(hw, l.End()), l.Committed())
				for range r.IntN(60) {
					before := l.Start()
					switch r.IntN(10) {
					default:
						mustPut(t, l, 1, 1, 1+r.IntN(3), 1+r.IntN(60))
					case 0:
						hw += ident.Offset(r.Int64N(int64(l.Durable()-hw) + 1))
					case 1:
						hw = l.Durable()
					case 2, 3:
						step("retention", l.Retain(time.Now(), hw))
					case 8:
						if hw > before {
							step("purge", l.Purge(before+1+ident.Offset(r.Int64N(int64(hw-before))), hw))
						}
					case 4:
						if hw > before {
							step("start", l.SetStart(before+ident.Offset(r.Int64N(int64(hw-before)+1)), hw))
						}
					case 5:
						if r.IntN(3) == 0 {
							step("cut", l.TruncateTo(record.At(hw)))
							cut++
						}
					case 6:
						step("checkpoint", s.checkpoint(t.Context()))
					case 7:
						time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
					}
					hw = min(hw, l.End())
					committed = max(committed, hw)
					if l.Start() > before {
						moved++
					}
				}
				hw = l.Durable()
				for range 2 { // the second time what the first has kept is committed
					step("retention", l.Retain(time.Now(), hw))
				}
				if big := l.Bytes(); big > 1500+2*800 {
					waited++
				}
				committed = hw
				if next := disk.KillClone(); r.IntN(2) == 0 {
					disk = next
				} else {
					disk = disk.CrashClone(r)
				}
			}
			for range 1 + r.IntN(4) {
				life()
			}
		})
	}
	if moved == 0 || cut == 0 || waited > 0 {
		t.Errorf("the start moved %d times, the log was cut %d times, and %d were too big in the end", moved, cut, waited)
	}
}
