package consensus

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// disk is a backing whose writes fail as told.
type disk struct {
	*raft.InmemStore
	mu  sync.Mutex
	err error
}

func (d *disk) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) fails() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *disk) StoreLogs(l []*raft.Log) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.InmemStore.StoreLogs(l)
}

func (d *disk) DeleteRange(first, last uint64) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.InmemStore.DeleteRange(first, last)
}

func (d *disk) Set(k, v []byte) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.InmemStore.Set(k, v)
}

func (d *disk) Get(k []byte) ([]byte, error) {
	v, err := d.InmemStore.Get(k)
	if err == nil && v == nil {
		return nil, errNotFound
	}
	return v, err
}

var (
	noSpace   = &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}
	noSync    = syscall.EIO
	syncSpace = syscall.ENOSPC // reported by fdatasync: pages that were taken are lost
)

func testStore(t *testing.T) (*store, *disk, *error) {
	t.Helper()
	d := &disk{InmemStore: raft.NewInmemStore()}
	m, err := openMark(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.close() })
	var failed error
	return newStore(d, m, func(err error) { failed = err }), d, &failed
}

func TestNoSpaceIsARefusalAndAnyOtherErrorTheEnd(t *testing.T) {
	entry := []*raft.Log{{Index: 1, Term: 1, Data: []byte("say")}}
	for _, c := range []struct {
		err error
		end bool
	}{{noSpace, false}, {noSync, true}, {syncSpace, true}} {
		s, d, failed := testStore(t)
		d.set(c.err)
		err := s.StoreLogs(entry)
		if !errors.Is(err, c.err) || errors.Is(err, errFull) == c.end || (*failed != nil) != c.end {
			t.Errorf("%v: answered %v, told %v", c.err, err, *failed)
		}
		if s.mark.get() != 0 {
			t.Errorf("%v: the mark went up", c.err)
		}
		if c.end {
			continue
		}
		d.set(nil)
		if err := s.StoreLogs(entry); err != nil || s.mark.get() != 1 {
			t.Errorf("space returned: %v, mark %d", err, s.mark.get())
		}
	}
}

func TestATermWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, failed := testStore(t)
		d.set(noSpace)
		saved := make(chan error, 1)
		go func() { saved <- s.SetUint64([]byte(keyTerm), 7) }()
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if len(saved) != 0 {
			t.Fatal("saved on a full disk")
		}
		d.set(nil)
		if err := <-saved; err != nil || *failed != nil {
			t.Fatal(err, *failed)
		}
		if v, err := s.GetUint64([]byte(keyTerm)); err != nil || v != 7 {
			t.Fatal(v, err)
		}
	})
}

func TestAFullDiskDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, _ := testStore(t)
		d.set(noSpace)
		saved := make(chan error, 1)
		go func() { saved <- s.Set([]byte("k"), nil) }()
		synctest.Wait()
		s.stop()
		if err := <-saved; err != nil {
			t.Fatal(err) // raft would panic
		}
		if err := s.StoreLogs([]*raft.Log{{Index: 1}}); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
	})
}

func TestChangedBytesAreNeverRead(t *testing.T) {
	s, d, failed := testStore(t)
	who := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("who")}
	if err := s.StoreLogs([]*raft.Log{who, {Index: 2, Term: 1}}); err != nil { // the last one is not read
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(1, &l); err != nil || string(l.Data) != "who" {
		t.Fatal(l, err)
	}
	if err := s.GetLog(3, &l); !errors.Is(err, raft.ErrLogNotFound) || *failed != nil {
		t.Fatal(err, *failed)
	}
	if err := d.InmemStore.GetLog(1, &l); err != nil {
		t.Fatal(err)
	}
	l.Data = []byte("why")
	if err := d.InmemStore.StoreLog(&l); err != nil {
		t.Fatal(err)
	}
	if err := s.GetLog(1, &l); err == nil || *failed == nil {
		t.Fatal("a changed entry was read")
	}

	s, d, failed = testStore(t)
	if err := s.SetUint64([]byte("a"), 1); err != nil {
		t.Fatal(err)
	}
	v, _ := d.Get([]byte("a"))
	if err := d.Set([]byte("b"), v); err != nil { // a whole value under another key
		t.Fatal(err)
	}
	if _, err := s.GetUint64([]byte("b")); err == nil || *failed == nil {
		t.Fatal("a value was read under another key")
	}
	if _, err := s.GetUint64([]byte("c")); err == nil || err.Error() != "not found" {
		t.Fatalf("raft compares the text: %v", err)
	}
}

func TestTheMarkFollowsTheEndOfTheLog(t *testing.T) {
	s, d, failed := testStore(t)
	for i := range uint64(9) {
		if err := s.StoreLog(&raft.Log{Index: i + 1, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want uint64) {
		t.Helper()
		_, last, ok, err := readMark(filepath.Dir(s.mark.file.Name()))
		if err != nil || !ok || last != want {
			t.Fatalf("mark %d, %v, %v; want %d", last, ok, err, want)
		}
	}
	expect(9)
	if err := s.DeleteRange(1, 4); err != nil { // compaction
		t.Fatal(err)
	}
	expect(9)
	if err := s.DeleteRange(8, 9); err != nil { // a follower's tail
		t.Fatal(err)
	}
	expect(7)
	d.set(noSpace)
	if err := s.DeleteRange(5, 6); err == nil || *failed != nil {
		t.Fatal("compaction may fail for want of space and be tried again", err, *failed)
	}
	if err := s.DeleteRange(7, 7); err == nil || *failed == nil {
		t.Fatal("a tail that could not be cut leaves raft with a wrong end: that is the end", err)
	}
}

func TestAStalledDiskIsSeen(t *testing.T) {
	s, _, _ := testStore(t)
	if s.stalled(time.Now()) != 0 {
		t.Fatal("nothing is under way")
	}
	err := s.write(func() error {
		if d := s.stalled(time.Now().Add(time.Hour)); d < time.Hour {
			t.Errorf("stalled for %s", d)
		}
		return nil
	})
	if err != nil || s.stalled(time.Now()) != 0 {
		t.Fatal(err)
	}
}

func TestAFullDiskIsRefusedBeforeItBites(t *testing.T) {
	if got := outcome(errors.Join(errFull, noSpace)); got != NoSpace {
		t.Fatal(got)
	}
	if !strings.Contains(errFull.Error(), "full") || isFull(nil) || isFull(syscall.ENOSPC) || !isFull(noSpace) {
		t.Fatal("what counts as a full disk has changed")
	}
}

// counting counts what is read of a backing.
type counting struct {
	backing
	reads int
}

func (c *counting) GetLog(index uint64, l *raft.Log) error {
	c.reads++
	return c.backing.GetLog(index, l)
}

// An idle leader asks for the last entry all the time. It is not read for that, and is
// what was kept, also after a cut.
func TestTheLastEntryIsNotReadAgainAndAgain(t *testing.T) {
	m, err := openMark(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &counting{backing: &disk{InmemStore: raft.NewInmemStore()}}
	s := newStore(b, m, func(err error) { t.Error(err) })
	keep := func(term uint64, indexes ...uint64) {
		t.Helper()
		var logs []*raft.Log
		for _, i := range indexes {
			logs = append(logs, &raft.Log{Index: i, Term: term, Data: []byte{byte(term), byte(i)}})
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(index, term uint64, reads int) {
		t.Helper()
		b.reads = 0
		var l raft.Log
		if err := s.GetLog(index, &l); err != nil || l.Index != index || l.Term != term || string(l.Data) != string([]byte{byte(term), byte(index)}) || b.reads != reads {
			t.Fatalf("%+v, %v after %d reads", l, err, b.reads)
		}
	}
	keep(1, 1, 2, 3)
	holds(3, 1, 0)
	holds(2, 1, 1)
	if err := s.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.GetLog(3, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatal(err)
	}
	holds(2, 1, 1)
	keep(2, 3)
	holds(3, 2, 0)
}
