package consensus

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"tidewire/internal/ident"
)

// follower makes a folder of a member that got its leader's snapshot.
func follower(t *testing.T) (*group, *member) {
	t.Helper()
	g := newGroup(t)
	first := g.start(ident.NodeID{1}, t.TempDir(), nil)
	for i := range 3 {
		say(t, first.Node, i*30, i*30+30)
		if err := first.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	second := g.start(ident.NodeID{2}, t.TempDir(), nil)
	g.join(first, second)
	g.same(first.tape.text())
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
	delete(g.all, second.cfg.ID)
	return g, second
}

// edit changes a folder that nobody has open.
func edit(t *testing.T, m *member, change func(*store) error) {
	t.Helper()
	root := filepath.Join(m.cfg.Dir, folder)
	bolt, err := openBolt(filepath.Join(root, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	last, err := bolt.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	mark, err := openMark(root, last)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(newStore(bolt, mark, func(error) {})), mark.close(), bolt.Close()); err != nil {
		t.Fatal(err)
	}
}

// A node that ends after its leader's snapshot has come, and before it has dropped the
// log that the snapshot replaces, drops it when it starts.
func TestAnInterruptedInstallIsFinished(t *testing.T) {
	g, m := follower(t)
	r, err := Verify(m.cfg.Dir, 0, m.cfg.Checks)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, m, func(s *store) error {
		if err := s.DeleteRange(r.First, r.Last); err != nil {
			return err
		}
		return s.StoreLog(&raft.Log{Index: 5, Term: 1, Type: raft.LogCommand, Data: []byte("say old")})
	})
	if r, err = Verify(m.cfg.Dir, 0, m.cfg.Checks); err != nil || r.Last != 5 || r.Snapshot <= r.Last {
		t.Fatal(r, err)
	}
	back := g.start(m.cfg.ID, m.cfg.Dir, nil)
	leader := g.all[ident.NodeID{1}]
	g.same(leader.tape.text())
	if err := back.end(); err != nil {
		t.Fatal(err)
	}
	if r, err = Verify(m.cfg.Dir, 0, m.cfg.Checks); err != nil || r.Last != 0 && r.First != r.Snapshot+1 {
		t.Fatal(r, err)
	}
}

// The same folder without the note that a leader sent the snapshot is an older raft.db
// beside a newer snapshot; and one without anything is no joiner's.
func TestAnOlderStoreBesideASnapshotIsStillDamage(t *testing.T) {
	_, m := follower(t)
	edit(t, m, func(s *store) error {
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		last, err := s.LastIndex()
		if err != nil {
			return err
		}
		return errors.Join(s.DeleteRange(first, last), s.SetUint64([]byte(keySnapshotSent), 0),
			s.StoreLog(&raft.Log{Index: 5, Term: 1, Type: raft.LogCommand, Data: []byte("say old")}))
	})
	var d *Damage
	if _, err := Verify(m.cfg.Dir, 0, m.cfg.Checks); !errors.As(err, &d) || !strings.Contains(err.Error(), "older than it should be") {
		t.Fatal(err)
	}
	_, m = follower(t)
	remove(snapshotFolder)(t, filepath.Join(m.cfg.Dir, folder))
	if _, err := Verify(m.cfg.Dir, 0, m.cfg.Checks); !errors.As(err, &d) || !strings.Contains(err.Error(), "In a cluster, replace the node") {
		t.Fatalf("a joiner's folder without its snapshot passed, or nobody hears what to do: %v", err)
	}
}

// raft takes no note of a cut before the entries behind it are there: no space between
// the two is no refusal.
func TestNoSpaceAfterACutEndsTheNode(t *testing.T) {
	var failure error
	d := &disk{InmemStore: raft.NewInmemStore()}
	m, err := openMark(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(d, m, func(err error) { failure = err })
	entry := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 1, Data: []byte("say")} }
	for i := uint64(1); i <= 3; i++ {
		if err := s.StoreLog(entry(i)); err != nil {
			t.Fatal(err)
		}
	}
	full := pathError(syscall.ENOSPC)
	d.set(full)
	if err := s.StoreLog(entry(4)); !errors.Is(err, errFull) || failure != nil {
		t.Fatal(err, failure)
	}
	d.set(nil)
	if err := s.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	d.set(full)
	if err := s.StoreLog(entry(3)); err == nil || errors.Is(err, errFull) || failure == nil {
		t.Fatal(err, failure)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}

// fullDisk takes nothing when told.
type fullDisk struct {
	backing
	mu      sync.Mutex
	full    bool
	refused int
}

func (d *fullDisk) set(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func (d *fullDisk) StoreLogs(l []*raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		d.refused++
		return pathError(syscall.ENOSPC)
	}
	return d.backing.StoreLogs(l)
}

func TestALeaderWhoseDiskIsFullRefusesAndAnotherLeads(t *testing.T) {
	g := newGroup(t)
	tight := &fullDisk{}
	first := g.start(ident.NodeID{1}, t.TempDir(), func(_ *Config, n *Node) {
		n.wrap = func(b backing) backing { tight.backing = b; return tight }
	})
	for i := byte(2); i <= 3; i++ {
		g.join(first, g.start(ident.NodeID{i}, t.TempDir(), nil))
	}
	say(t, first.Node, 0, 2)
	tight.set(true)
	var e *ApplyError
	if _, err := first.Apply(t.Context(), Command{Bytes: []byte("say no room")}); !errors.As(err, &e) || e.Outcome != NoSpace {
		t.Fatal(err)
	}
	delete(g.all, first.cfg.ID)
	next := g.leader()
	say(t, next.Node, 2, 4)
	tight.set(false)
	g.all[first.cfg.ID] = first
	g.same(next.tape.text())
	if strings.Contains(next.tape.text(), "no room") {
		t.Fatal("what was refused was kept")
	}
}

// It hears its leader all the while, and knows nothing of what that says. And raft alone
// would wait twice as long before each try.
func TestAFollowerWhoseDiskIsFullHearsNothingAndIsBackSoon(t *testing.T) {
	g := newGroup(t)
	first := g.start(ident.NodeID{1}, t.TempDir(), nil)
	g.join(first, g.start(ident.NodeID{2}, t.TempDir(), nil))
	tight := &fullDisk{}
	third := g.start(ident.NodeID{3}, t.TempDir(), func(_ *Config, n *Node) {
		n.wrap = func(b backing) backing { tight.backing = b; return tight }
	})
	g.join(first, third)
	eventually(t, electionLimit, "it hears its leader", func() bool { return third.Heard() < clusterTimeout })
	tight.set(true)
	say(t, g.leader().Node, 0, 3)
	eventually(t, electionLimit, "it is tried again and again", func() bool {
		tight.mu.Lock()
		defer tight.mu.Unlock()
		return tight.refused >= 16
	})
	if third.Heard() < time.Second {
		t.Errorf("it heard its leader %s ago", third.Heard())
	}
	tight.set(false)
	freed := time.Now()
	g.same(g.leader().tape.text())
	t.Logf("it had everything after %s", time.Since(freed).Round(time.Millisecond))
	eventually(t, electionLimit, "it hears its leader again", func() bool { return third.Heard() < clusterTimeout })
}

func TestTheStoreHasRoomOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	cfg, _ := tapeConfig(dir)
	cfg.Found = true
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	say(t, n, 0, 3)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, folder, dbFile), &s); err != nil {
		t.Fatal(err)
	}
	if s.Size < aheadBytes || s.Blocks*512 < aheadBytes {
		t.Errorf("it has %d bytes, %d of them from the disk", s.Size, s.Blocks*512)
	}
}

func pathError(cause error) error { return &fs.PathError{Op: "write", Path: "raft.db", Err: cause} }
