package storage

import (
	"sync"
	"testing"
	"testing/synctest"

	"tidewire/internal/ident"
)

// Topics come and go while checkpoints walk the logs they were listed with.
func TestCheckpointsBearLogsThatAreDeletedMeanwhile(t *testing.T) {
	s := start(t, small(t.TempDir()))
	defer s.mustClose(t)
	stop := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.checkpoint(t.Context()); err != nil {
				t.Errorf("checkpoint: %v", err)
				return
			}
		}
	})
	for n := range 60 {
		l := s.mustLog(t, part(n), LogConfig{})
		l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte("state") })
		mustPut(t, l, 1, 1000, 3, 40)
		away := s.Delete
		if n%3 == 0 {
			away = s.Quarantine
		}
		if err := away(part(n)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	g.Wait()
	if left := s.Found(); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// A folder with a corrupt journal serves what it has; that a topic is deleted
// meanwhile must neither end the node nor touch the folder.
func TestADeletionInAReadOnlyFolderIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, _ := threeBatches(t, true)
		for _, name := range names(t, disk, "/data/journal", ".journal") {
			if err := disk.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			s := start(t, cfg)
			if s.ReadOnly() == nil || len(s.Found()) != 1 {
				t.Fatalf("read-only: %v, found %v", s.ReadOnly(), s.Found())
			}
			if err := s.Delete(part(1)); err != nil {
				t.Errorf("delete: %v", err)
			}
			if found := s.Found(); len(found) > 0 {
				t.Errorf("still there: %v", found)
			}
			s.mustClose(t)
		}
	})
}
