package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestTheRealFileSystem(t *testing.T) {
	var fsys OS
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := errors.Join(MkdirAll(fsys, dir), MkdirAll(fsys, dir)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "f")
	for _, text := range []string{"one", "another"} {
		if err := WriteAtomic(fsys, name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadFile(fsys, name); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if infos, err := fsys.ReadDir(dir); err != nil || len(infos) != 1 || infos[0] != (Info{"f", 7, false}) {
		t.Errorf("%v, %v", infos, err)
	}
	if _, err := fsys.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file was made twice: %v", err)
	}
	f, err := fsys.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(3), f.Sync()); err != nil {
		t.Error(err)
	}
	if n, err := f.Size(); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := RemoveAll(fsys, filepath.Dir(dir)); err != nil {
		t.Error(err)
	}
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "ano" {
		t.Errorf("a removed file that is open holds %q, %v", b, err)
	}
	if err := errors.Join(f.Close(), RemoveAll(fsys, dir)); err != nil {
		t.Error(err)
	}
	if n, err := fsys.Free(t.TempDir()); n <= 0 || err != nil {
		t.Errorf("%d free, %v", n, err)
	}
}

func TestALockHasOneHolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	l, err := OS{}.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (OS{}).Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("a second holder: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OS{}.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestHomeIsTheDataFolder(t *testing.T) {
	for path, want := range map[string]string{
		"/srv/topics/data/journal/00000000000000000001.journal": "/srv/topics/data",
		"/srv/data/journal":                   "/srv/data",
		"./tidewire-data/topics/a/0/0.log":    "tidewire-data",
		"tidewire-data/raft/snapshots/1/meta": "tidewire-data",
		"raft/raft.db":                        ".",
		"/srv/data":                           "/srv/data",
	} {
		if got := Home(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
