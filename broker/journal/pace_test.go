package journal

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/testkit/faultfs"
)

// A disk that takes 20 KiB/s, and somebody who would fill 256 KiB of queue: what
// is let in is kept in good time, and the rest is refused while it is known
// that nothing of it is kept.
func TestASlowDiskRefusesWhatItCannotKeepSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := faultfs.Wrap(faultfs.New(0))
		cfg := Config{FS: faulty, Dir: "/j", Storage: storageID, FileBytes: 64 << 10, GroupBytes: 2 << 10, QueueBytes: 256 << 10}
		newDisk(t, cfg)
		j := start(t, cfg)
		faulty.Strike(faultfs.Rule{Op: faultfs.OpSync, Match: "*.journal", Delay: 100 * time.Millisecond})
		payload := make([]byte, 250)
		var longest time.Duration
		kept, refused := 0, 0
		for began := time.Now(); time.Since(began) < 20*time.Second; {
			if err := j.Room(len(payload)); err != nil {
				if !fault.Is(err, fault.Throttled) {
					t.Fatal(err)
				}
				refused++
				time.Sleep(20 * time.Millisecond)
				continue
			}
			queued := time.Now()
			if err := j.Append(Entry{Type: entryTest, Payload: payload, Durable: fn(func(_ Position, err error) {
				if err == nil {
					kept++
					longest = max(longest, time.Since(queued))
				}
			})}); err != nil {
				t.Fatal(err)
			}
		}
		j.close(t)
		if longest > 5*queueWait/2 {
			t.Errorf("one entry waited %s for the disk", longest)
		}
		if bytes := kept * len(payload); bytes < 320<<10 {
			t.Errorf("%d KiB were kept in 20 s, and 400 could have been", bytes>>10)
		}
		if refused == 0 {
			t.Error("nothing was refused")
		}
	})
}
