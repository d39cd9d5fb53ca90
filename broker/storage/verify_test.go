package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

func TestVerifyTellsWhatIsThereAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS = disk
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 500})
		for i := range 20 {
			mustPut(t, l, 1, int64(i), 2, 60)
		}
		time.Sleep(time.Second)
		verify := func(d *faultfs.Memory) (Summary, []Finding) {
			t.Helper()
			faulty := faultfs.Wrap(d)
			var findings []Finding
			sum, err := Verify(faulty, "/data", func(f Finding) { findings = append(findings, f) })
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range []faultfs.Op{faultfs.OpCreate, faultfs.OpWrite, faultfs.OpSync, faultfs.OpTruncate, faultfs.OpMkdir, faultfs.OpRemove, faultfs.OpRename, faultfs.OpSyncDir} {
				if n := faulty.Count(op); n > 0 {
					t.Errorf("verify called %s %d times", op, n)
				}
			}
			return sum, findings
		}
		sum, findings := verify(disk)
		if !sum.Live || sum.Damaged > 0 || len(sum.Partitions) != 1 || sum.Partitions[0].End != 40 {
			t.Errorf("beside a running node: %+v, %+v", sum, findings)
		}
		s.mustClose(t)
		sum, findings = verify(disk)
		p := sum.Partitions[0]
		if sum.Live || sum.Damaged > 0 || len(findings) > 0 || p.Start != 0 || p.End != 40 || p.Batches != 20 || p.Records != 40 || p.Segments < 5 || p.InJournal > 0 {
			t.Errorf("a clean folder: %+v, %+v", sum, findings)
		}

		// One bit in a sealed segment that nobody has read since.
		name := names(t, disk, partitionDir("/data", part(1)), segmentSuffix)[2]
		b := readFile(t, disk, name)
		b[len(b)-1] ^= 1
		replaceFile(t, disk, name, b)
		sum, findings = verify(disk)
		if sum.Damaged != 1 || !findings[0].Damage || findings[0].File != name || findings[0].Partition != part(1) || findings[0].Offset == 0 || findings[0].Pos == 0 || !sum.Partitions[0].Damaged {
			t.Errorf("a flipped bit: %+v, %+v", sum, findings)
		}
		damaged := findings[0].Offset
		// The node meets it when it reads there: what lies before is served.
		cfg.FS = disk
		s = start(t, cfg)
		l = s.mustLog(t, part(1), LogConfig{})
		if next, err := readAll(l, 100); next != damaged || err == nil || l.Damage() == nil {
			t.Errorf("records to %d, damage is at %d; %v", next, damaged, err)
		}
		if _, err := l.Read(ident.Offset(0), 40, 100); err != nil {
			t.Errorf("what lies before the damage: %v", err)
		}
		s.mustClose(t)

		// A journal file that lost its end.
		journals := names(t, disk, "/data/journal", ".journal")
		b = readFile(t, disk, journals[len(journals)-1])
		replaceFile(t, disk, journals[len(journals)-1], b[:len(b)-1])
		if sum, findings = verify(disk); sum.Damaged < 2 {
			t.Errorf("a short journal file: %+v, %+v", sum, findings)
		}
	})
}

func TestDeletedAndQuarantinedPartitionsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS = disk
		s := start(t, cfg)
		for n := range 3 {
			mustPut(t, s.mustLog(t, part(n), LogConfig{}), 1, 1, 3, 30)
		}
		time.Sleep(time.Second)
		if err := s.Delete(part(0)); err != nil {
			t.Fatal(err)
		}
		if err := s.Quarantine(part(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.PutMeta("node", "n1"); err != nil {
			t.Fatal(err)
		}
		killed := disk.KillClone()
		s.mustClose(t)
		for _, d := range []*faultfs.Memory{killed, disk} {
			cfg.FS = d
			s := start(t, cfg)
			if found := s.Found(); len(found) != 1 || found[0] != part(2) {
				t.Errorf("found %v", found)
			}
			if v, ok := s.GetMeta("node"); !ok || v != "n1" {
				t.Errorf("the value is %q", v)
			}
			if got := len(names(t, d, "/data/quarantine", "")); got != 1 {
				t.Errorf("%d entries in quarantine", got)
			}
			s.mustClose(t)
		}
	})
}
