package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/testkit/faultfs"
)

// Without an open file for the next journal file the journal waits, says so
// once, takes no more than it has place for, and goes on by itself.
func TestTheJournalWaitsForOpenFiles(t *testing.T) {
	for name, rule := range map[string]faultfs.Rule{
		"a new file":        {Op: faultfs.OpCreate, Err: syscall.EMFILE},
		"of the machine":    {Op: faultfs.OpCreate, Err: syscall.ENFILE},
		"a released file":   {Op: faultfs.OpOpen, Match: spareName, Err: syscall.EMFILE},
		"the folder's sync": {Op: faultfs.OpSyncDir, Err: syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer // only the journal's loops write to it, and only this bubble reads
				disk := faultfs.New(0)
				faulty := faultfs.Wrap(disk)
				cfg := config(faulty)
				cfg.FirstBytes = cfg.FileBytes
				cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
				newDisk(t, cfg)
				j := start(t, cfg)
				n := 0
				put := func() {
					t.Helper()
					if err := j.put(fmt.Sprintf("%08d%s", n, strings.Repeat("y", 92))); err != nil {
						t.Fatal(err)
					}
					n++
				}
				for range 12 { // so that there are released files
					for range 10 {
						put()
					}
					j.checkpoint(t)
					time.Sleep(time.Second)
				}
				for range 200 { // many files at once, so that some are left when the next is prepared
					put()
				}
				j.checkpoint(t)
				time.Sleep(time.Second)
				began := n
				faulty.Strike(rule)
				refused := 0
				for range 100 {
					synctest.Wait() // what the journal lacks it knows by now
					err := j.Room(100)
					if err == nil {
						put()
						continue
					}
					if !fault.Is(err, fault.Throttled) {
						t.Fatal(err)
					}
					refused++
					time.Sleep(time.Second)
				}
				// New files make do with released ones, and a released one with a new one
				// where that is made before the last is full.
				if refused == 0 && name == "the folder's sync" || name == "a released file" && out.Len() == 0 {
					t.Error("nothing was refused: nothing was tested")
				}
				faulty.Heal()
				time.Sleep(5 * time.Second)
				if err := j.Room(100); err != nil {
					t.Fatalf("files can be opened again, and still %v", err)
				}
				put()
				j.close(t)
				if warned := strings.Count(out.String(), "level=WARN"); warned > 1 || refused > 0 && warned == 0 {
					t.Errorf("%d warnings: %s", warned, &out)
				}
				all := replayed(t, read(t, disk))
				if len(all) == 0 || all[len(all)-1][:8] != fmt.Sprintf("%08d", n-1) {
					t.Errorf("of %d entries, %d since, the last that comes back is %q", n, n-began, all)
				}
			})
		})
	}
}
