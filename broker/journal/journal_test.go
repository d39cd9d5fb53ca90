package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
	"tidewire/internal/vfs"
)

var storageID = ident.StorageID{1, 2, 3}

const entryTest Type = 7

type fn func(Position, error)

func (f fn) Done(p Position, err error) { f(p, err) }

func config(fsys vfs.FS) Config {
	return Config{FS: fsys, Dir: "/j", Storage: storageID, FileBytes: MinFileBytes + 1000, FirstBytes: MinFileBytes, FrameBytes: 300}
}

func newDisk(t testing.TB, cfg Config) {
	t.Helper()
	if err := errors.Join(vfs.MkdirAll(cfg.FS, "/j"), Found(cfg)); err != nil {
		t.Fatal(err)
	}
}

// running is a journal with its Run.
type running struct {
	*Journal
	stop context.CancelFunc
	done chan error
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	s, err := Read(cfg.FS, cfg.Dir, cfg.Storage)
	if err != nil {
		t.Fatal(err)
	}
	j, err := Open(cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{j, stop, make(chan error, 1)}
	go func() { r.done <- j.Run(ctx) }()
	return r
}

func (r *running) close(t testing.TB) {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
}

func (r *running) put(payload string) error {
	done := make(chan error, 1)
	if err := r.Append(Entry{Type: entryTest, Payload: []byte(payload), Durable: fn(func(_ Position, err error) { done <- err })}); err != nil {
		return err
	}
	return <-done
}

func (r *running) checkpoint(t testing.TB) {
	t.Helper()
	cut := r.Done()
	done := make(chan error, 1)
	if err := r.Append(Entry{Type: Checkpoint, Payload: AppendCut(nil, cut), Durable: fn(func(_ Position, err error) { done <- err })}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.Release(cut.At)
}

func replayed(t testing.TB, s *Scan) (all []string) {
	t.Helper()
	last := Position(0)
	if err := s.Replay(func(end Position, typ Type, p []byte) error {
		if end <= last {
			t.Fatalf("position %s after %s", end, last)
		}
		last = end
		if typ == entryTest {
			all = append(all, string(p))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t testing.TB, fsys vfs.FS) *Scan {
	t.Helper()
	s, err := Read(fsys, "/j", storageID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEntriesComeBackInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := config(disk)
		newDisk(t, cfg)
		var want []string
		for life := range 3 {
			j := start(t, cfg)
			var mu sync.Mutex
			var order []string
			for i := range 60 {
				text := fmt.Sprintf("%d-%d-%s", life, i, strings.Repeat("x", i*3))
				want = append(want, text)
				if err := j.Append(Entry{Type: entryTest, Payload: []byte(text), Durable: fn(func(_ Position, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					order = append(order, text)
				})}); err != nil {
					t.Fatal(err)
				}
			}
			j.close(t)
			if strings.Join(order, ",") != strings.Join(want[60*life:], ",") {
				t.Fatal("the waiters were told out of order")
			}
			s := read(t, disk)
			if got := replayed(t, s); s.Corrupt != nil || strings.Join(got, ",") != strings.Join(want, ",") {
				t.Fatalf("life %d: %d entries of %d come back, %v", life, len(got), len(want), s.Corrupt)
			}
		}
	})
}

// Frames of a file's former life lie exactly where new ones would: same sizes,
// good checksums then. None of them may pass now.
func TestStaleFramesInRecycledFilesNeverPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := config(disk)
		cfg.FirstBytes = cfg.FileBytes
		newDisk(t, cfg)
		j := start(t, cfg)
		n := 0
		text := func(i int) string { return fmt.Sprintf("%08d%s", i, strings.Repeat("y", 92)) }
		for range 12 {
			for range 10 {
				if err := j.put(text(n)); err != nil {
					t.Fatal(err)
				}
				n++
			}
			j.checkpoint(t)
			time.Sleep(time.Second)
		}
		if j.Recycled() == 0 {
			t.Fatal("no file was recycled: nothing is tested")
		}
		synctest.Wait()
		infos, err := disk.ReadDir(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		onDisk := int64(0)
		for _, info := range infos {
			onDisk += info.Size
		}
		if got := j.Held(); got != onDisk {
			t.Errorf("holds %d bytes in %d files, says %d", onDisk, len(infos), got)
		}
		// From here on, the state after every entry.
		var since []string
		for range 30 {
			if err := j.put(text(n)); err != nil {
				t.Fatal(err)
			}
			since = append(since, text(n))
			n++
			got := replayed(t, read(t, disk))
			if len(got) < len(since) || strings.Join(got[len(got)-len(since):], ",") != strings.Join(since, ",") {
				t.Fatalf("%d entries come back, the last one %q", len(got), got[len(got)-1])
			}
		}
		j.close(t)
	})
}

func TestNothingPassesAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := faultfs.Wrap(faultfs.New(0))
		cfg := config(faulty)
		newDisk(t, cfg)
		j := start(t, cfg)
		if err := j.put("a"); err != nil {
			t.Fatal(err)
		}
		faulty.Strike(faultfs.Rule{Op: faultfs.OpSync, Match: "*.journal", Times: 1, Err: syscall.EIO})
		if err := j.put("b"); !fault.Is(err, fault.UnknownOutcome) {
			t.Errorf("the one under way hears %v", err)
		}
		if err := j.put("c"); err == nil {
			t.Error("one after the failure was kept")
		}
		if err := <-j.done; !errors.Is(err, syscall.EIO) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestWrittenComesBeforeDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := faultfs.Wrap(faultfs.New(0))
		cfg := config(faulty)
		newDisk(t, cfg)
		j := start(t, cfg)
		faulty.Strike(faultfs.Rule{Op: faultfs.OpSync, Match: "*.journal", Delay: time.Minute})
		began := time.Now()
		var written, durable time.Duration
		if err := j.Append(Entry{
			Type: entryTest, Payload: []byte("x"),
			Written: fn(func(Position, error) { written = time.Since(began) }),
			Durable: fn(func(Position, error) { durable = time.Since(began) }),
		}); err != nil {
			t.Fatal(err)
		}
		j.close(t)
		if written >= time.Minute || durable < time.Minute {
			t.Errorf("written after %s, durable after %s", written, durable)
		}
	})
}

// An idle journal leaves a mark, and then nothing wakes it.
func TestAnIdleJournalLeavesOneMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		faulty := faultfs.Wrap(disk)
		cfg := config(faulty)
		newDisk(t, cfg)
		j := start(t, cfg)
		if err := j.put("x"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := read(t, disk); s.mark != 1 || s.end.Frame != 2 {
			t.Errorf("mark %d, end %d", s.mark, s.end.Frame)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := read(t, disk); s.mark != 2 || s.end.Frame != 3 {
			t.Errorf("after a second: mark %d, end %d", s.mark, s.end.Frame)
		}
		before := faulty.Count(faultfs.OpWrite)
		time.Sleep(time.Hour)
		if n := faulty.Count(faultfs.OpWrite) - before; n > 0 {
			t.Errorf("%d writes in an idle hour", n)
		}
		j.close(t)
	})
}

// Of a torn group of frames any may survive. The journal ends at the first gap,
// goes on, and the gap is told from corruption for ever.
func TestATornGroupStaysATornGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(60) {
			disk := faultfs.New(0)
			faulty := faultfs.Wrap(disk)
			cfg := config(faulty)
			newDisk(t, cfg)
			j := start(t, cfg)
			if err := j.put("first"); err != nil {
				t.Fatal(err)
			}
			// A group of several frames, caught before its sync.
			r := rand.New(rand.NewPCG(seed, 5))
			var mu sync.Mutex
			var crashed *faultfs.Memory
			faulty.SetHook(func(op faultfs.Op, name string) {
				mu.Lock()
				defer mu.Unlock()
				if op == faultfs.OpSync && crashed == nil && strings.HasSuffix(name, suffix) {
					crashed = disk.CrashClone(r)
				}
			})
			for i := range 6 {
				if err := j.Append(Entry{Type: entryTest, Payload: []byte(strings.Repeat(fmt.Sprint(i), 150))}); err != nil {
					t.Fatal(err)
				}
			}
			j.close(t)
			cfg.FS = crashed
			var want []string
			for life := range 4 {
				s := read(t, crashed)
				if s.Corrupt != nil {
					t.Fatalf("seed %d, life %d: %v", seed, life, s.Corrupt)
				}
				got := replayed(t, s)
				if life == 0 {
					want = got
				}
				if len(got) == 0 || got[0] != "first" || strings.Join(got, ",") != strings.Join(want, ",") {
					t.Fatalf("seed %d, life %d: %d entries, want %d", seed, life, len(got), len(want))
				}
				j := start(t, cfg)
				text := fmt.Sprintf("life %d", life)
				if err := j.put(text); err != nil {
					t.Fatal(err)
				}
				want = append(want, text)
				j.close(t)
			}
		}
	})
}

func FuzzFrames(f *testing.F) {
	s := salt{9}
	var good []byte
	for i := range 3 {
		b := appendEntry(make([]byte, frameHead), entryTest, fmt.Appendf(nil, "entry %d", i))
		seal(b, s, uint64(i+1), 1, 1)
		good = append(good, b...)
	}
	f.Add(good, 0)
	f.Add(good[:40], 3)
	f.Add(append([]byte{0, 0, 1}, good...), 50)
	f.Fuzz(func(t *testing.T, b []byte, flip int) {
		data := append(make([]byte, firstFrame), b...)
		frames, _ := findFrames(data, s)
		at := int64(firstFrame)
		for _, fr := range frames {
			if fr.offset < at || fr.offset+fr.bytes > int64(len(data)) {
				t.Fatalf("frame at %d of %d bytes", fr.offset, fr.bytes)
			}
			at = fr.offset + fr.bytes
		}
		if _, err := decodeHead(b); err == nil && len(b) < headBytes {
			t.Fatal("a short head passed")
		}
		// A flip in good frames loses frames, and never makes another one.
		bad := append(make([]byte, firstFrame), good...)
		i := firstFrame + (flip%len(good)+len(good))%len(good)
		bad[i] ^= 1 << (flip & 7)
		flipped, _ := findFrames(bad, s)
		if len(flipped) != 2 {
			t.Fatalf("%d frames after a flip at %d", len(flipped), i)
		}
	})
}
