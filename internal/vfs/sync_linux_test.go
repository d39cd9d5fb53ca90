package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTheWholeFileSystemIsSynced(t *testing.T) {
	dir := t.TempDir()
	w, err := OS{}.Whole(dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return // an old kernel, whose syncfs hides errors
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), fileMode); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.SyncAll(), w.SyncAll(), w.Close()); err != nil {
		t.Error(err)
	}
	if err := w.SyncAll(); err == nil {
		t.Error("a closed handle synced something")
	}
	if _, err := (OS{}).Whole(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was opened")
	}
}

func TestOldKernelsHideErrorsOfSyncfs(t *testing.T) {
	for release, want := range map[string]bool{
		"5.7.19-generic": false, "4.19.0": false, "3.10.0-1160.el7.x86_64": false, "strange": false, "": false,
		"5.8.0": true, "5.15.0-91-generic": true, "6.1": true, "10.0.1": true,
	} {
		if syncfsTells(release) != want {
			t.Errorf("%q: not %v", release, want)
		}
	}
}
