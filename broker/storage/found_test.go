package storage

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

// A folder that lost its storage.json is not a new one, however little it kept:
// founding it again would take the journal away.
func TestAFolderInUseIsNeverFoundedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS, cfg.FlushAge, cfg.FlushBytes = disk, time.Hour, 1<<20 // in the journal alone
		s := start(t, cfg)
		mustPut(t, s.mustLog(t, part(1), LogConfig{}), 1, 1, 2, 60)
		crashed := disk.KillClone()
		s.mustClose(t)
		if err := crashed.Remove(metaPath("/data")); err != nil {
			t.Fatal(err)
		}
		cfg.FS = crashed
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "no storage.json") {
			t.Fatalf("opened without its storage.json: %v", err)
		}
		scan, err := journal.Read(crashed, journalDir("/data"), s.ID())
		if err != nil || scan.Corrupt != nil || scan.Frames() == 0 {
			t.Errorf("the journal was touched: %v, %v", err, scan.Corrupt)
		}
	})
}

// A first start that was cut short before storage.json leaves a journal that
// nothing was written to.
func TestAFoundingThatWasCutShortIsBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS = disk
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		first := s.ID()
		run(s).mustClose(t)
		fresh := faultfs.New(0)
		jcfg := cfg.journal()
		jcfg.FS, jcfg.Storage = fresh, first
		if err := errors.Join(fresh.Mkdir("/data"), fresh.Mkdir(journalDir("/data")), journal.Found(jcfg)); err != nil {
			t.Fatal(err)
		}
		cfg.FS = fresh
		again := start(t, cfg)
		if again.ID() == first || again.ID() == (ident.StorageID{}) {
			t.Errorf("the folder has the id %s", again.ID())
		}
		mustPut(t, again.mustLog(t, part(1), LogConfig{}), 1, 1, 1, 10)
		again.mustClose(t)
	})
}
