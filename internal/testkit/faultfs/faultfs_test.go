package faultfs

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"tidewire/internal/vfs"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func write3(t *testing.T, m vfs.FS, name string, b []byte, off int64) vfs.File {
	t.Helper()
	f, err := m.OpenWrite(name)
	if err != nil {
		f = must[vfs.File](t)(m.Create(name))
	}
	must[int](t)(f.WriteAt(b, off))
	return f
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(200) {
		m := New(0)
		if err := vfs.WriteAtomic(m, "/a", bytes.Repeat([]byte{1}, 3000)); err != nil {
			t.Fatal(err)
		}
		write3(t, m, "/a", bytes.Repeat([]byte{2}, 1000), 1000) // not synced
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		got := must[[]byte](t)(vfs.ReadFile(c, "/a"))
		for i, b := range got {
			if b != 1 && (i < 1000 || i >= 2000 || b != 2) {
				t.Fatalf("seed %d: byte %d is %d", seed, i, b)
			}
		}
		if len(got) != 3000 {
			t.Fatalf("seed %d: %d bytes", seed, len(got))
		}
	}
}

func TestCrashReachesEveryFate(t *testing.T) {
	lost, kept, mixed, gone := 0, 0, 0, 0
	for seed := range uint64(300) {
		m := New(0)
		f := write3(t, m, "/a", bytes.Repeat([]byte{1}, 4096), 0)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if seed%2 == 0 { // else the file has no durable name
			if err := m.SyncDir("/"); err != nil {
				t.Fatal(err)
			}
		}
		write3(t, m, "/a", bytes.Repeat([]byte{2}, 4096), 0)
		got, err := vfs.ReadFile(m.CrashClone(rand.New(rand.NewPCG(seed, 0))), "/a")
		ones := bytes.Count(got, []byte{1})
		switch {
		case err != nil && seed%2 == 0:
			t.Fatalf("seed %d: a synced name is gone: %v", seed, err)
		case err != nil:
			gone++
		case ones == 4096:
			lost++
		case ones == 0:
			kept++
		default:
			mixed++
		}
	}
	if lost == 0 || kept == 0 || mixed == 0 || gone == 0 {
		t.Errorf("lost %d, kept %d, mixed %d, without a name %d: each has to happen", lost, kept, mixed, gone)
	}
}

func TestKillKeepsWhatWasWrittenButNotForEver(t *testing.T) {
	m := New(0)
	f := write3(t, m, "/a", []byte("old"), 0)
	if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	write3(t, m, "/a", []byte("new"), 0)
	k := m.KillClone()
	if got := must[[]byte](t)(vfs.ReadFile(k, "/a")); string(got) != "new" {
		t.Errorf("after a kill: %q", got)
	}
	seen := map[string]bool{}
	for seed := range uint64(100) {
		seen[string(must[[]byte](t)(vfs.ReadFile(k.CrashClone(rand.New(rand.NewPCG(seed, 0))), "/a")))] = true
	}
	if !seen["old"] || !seen["new"] {
		t.Errorf("a power cut after the kill gave %v; the write was never synced", seen)
	}
}

func TestRenameIsAtomicInAFolder(t *testing.T) {
	for seed := range uint64(100) {
		m := New(0)
		if err := vfs.WriteAtomic(m, "/a", []byte("one")); err != nil {
			t.Fatal(err)
		}
		f := write3(t, m, "/b", []byte("two"), 0)
		if err := errors.Join(f.Sync(), m.SyncDir("/"), m.Rename("/b", "/a")); err != nil {
			t.Fatal(err)
		}
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		a := string(must[[]byte](t)(vfs.ReadFile(c, "/a")))
		_, err := c.Stat("/b")
		if (a == "two") == (err == nil) {
			t.Fatalf("seed %d: /a holds %q, and /b: %v", seed, a, err)
		}
	}
}

func TestRemovedFilesStayReadable(t *testing.T) {
	m := New(0)
	f := write3(t, m, "/a", []byte("x"), 0)
	if err := m.Remove("/a"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 0); err != nil || b[0] != 'x' {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFullDiskTakesWhatFits(t *testing.T) {
	m := New(1000)
	f := must[vfs.File](t)(m.Create("/a"))
	n, err := f.WriteAt(make([]byte, 1500), 0)
	if n != 1000 || !vfs.IsNoSpace(err) {
		t.Errorf("%d, %v", n, err)
	}
	if free := must[int64](t)(m.Free("/")); free != 0 {
		t.Errorf("%d free", free)
	}
}

func TestRulesStrikeTheChosenOperation(t *testing.T) {
	m := New(0)
	f := Wrap(m)
	f.Strike(Rule{Op: OpSync, Match: "*.x", Skip: 1, Times: 1, Err: syscall.EIO, Lost: true})
	f.Strike(Rule{Op: OpWrite, Match: "short", Err: syscall.ENOSPC, Short: true})
	f.Strike(Rule{Op: OpRead, Match: "*.x", Flip: true})
	a := must[vfs.File](t)(f.Create("/a.x"))
	must[int](t)(a.WriteAt([]byte{8}, 0))
	if err := a.Sync(); err != nil {
		t.Error("the first sync passes:", err)
	}
	must[int](t)(a.WriteAt([]byte{16}, 0))
	if err := a.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error("the second fails:", err)
	}
	if err := a.Sync(); err != nil {
		t.Error("the third says nothing, as on Linux:", err)
	}
	b := make([]byte, 1)
	if _, err := a.ReadAt(b, 0); err != nil || b[0] != 17 {
		t.Errorf("the read is flipped: %d, %v", b[0], err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	got := must[[]byte](t)(vfs.ReadFile(m.CrashClone(rand.New(rand.NewPCG(1, 1))), "/a.x"))
	if !bytes.Equal(got, []byte{8}) {
		t.Errorf("the disk holds %v: what the failed sync lost is lost", got)
	}
	s := must[vfs.File](t)(f.Create("/short"))
	if n, err := s.WriteAt(make([]byte, 10), 0); n != 5 || !vfs.IsNoSpace(err) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestASyncOfAllSurvives(t *testing.T) {
	for seed := range uint64(50) {
		m := New(0)
		f := Wrap(m)
		w := must[vfs.Whole](t)(f.Whole("/"))
		write3(t, m, "/old", []byte{9}, 0)
		if err := errors.Join(m.Mkdir("/d"), w.SyncAll(), m.Mkdir("/d/e"), m.Remove("/old")); err != nil {
			t.Fatal(err)
		}
		write3(t, m, "/d/e/a", bytes.Repeat([]byte{1}, 2000), 0)
		if err := errors.Join(w.SyncAll(), w.Close()); err != nil {
			t.Fatal(err)
		}
		write3(t, m, "/d/e/a", bytes.Repeat([]byte{2}, 1000), 2000) // not synced
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		if got := must[[]byte](t)(vfs.ReadFile(c, "/d/e/a")); !bytes.Equal(got[:2000], bytes.Repeat([]byte{1}, 2000)) {
			t.Errorf("seed %d: %d bytes", seed, len(got))
		}
		if _, err := c.Stat("/old"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("seed %d: a removed file is back: %v", seed, err)
		}
		f.Strike(Rule{Op: OpSyncAll, Err: syscall.EIO})
		if err := w.SyncAll(); !errors.Is(err, syscall.EIO) {
			t.Errorf("a rule struck nothing: %v", err)
		}
	}
}

// A rule goes by the name that a file has now, not by the one it was opened under.
func TestRulesFollowARename(t *testing.T) {
	f := Wrap(New(0))
	if err := f.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	h, err := f.Create("/d/spare")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Rename("/d/spare", "/d/1.journal"), f.Rename("/d", "/e")); err != nil {
		t.Fatal(err)
	}
	f.Strike(Rule{Op: OpSync, Match: "*.journal", Err: syscall.EIO})
	if err := h.Sync(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "/e/1.journal") {
		t.Errorf("a sync of the renamed file: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if len(f.files) > 0 {
		t.Error("a closed file is still watched")
	}
}
