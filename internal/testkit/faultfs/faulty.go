package faultfs

import (
	"io"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"tidewire/internal/vfs"
)

func sortedNames(m map[string]*node) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Op is a kind of operation that a Rule can strike.
type Op string

// The operations.
const (
	OpCreate   Op = "create"
	OpOpen     Op = "open"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpSync     Op = "sync"
	OpTruncate Op = "truncate"
	OpMkdir    Op = "mkdir"
	OpRemove   Op = "remove"
	OpRename   Op = "rename"
	OpSyncDir  Op = "syncdir"
	OpSyncAll  Op = "syncall"
)

// Rule says what happens to matching operations.
type Rule struct {
	Op    Op
	Match string // pattern of filepath.Match on the last element; empty: any
	Skip  int    // so many matching operations pass first
	Times int    // then so many are struck; 0: all of them

	Err   error         // returned
	Short bool          // a write that fails has written half
	Lost  bool          // a sync that fails has lost what was written: the next one "succeeds"
	Delay time.Duration // before the operation
	Flip  bool          // a read has its lowest bit of the first byte flipped

	seen int
}

// Faulty is a file system that fails on demand.
type Faulty struct {
	vfs.FS

	mu    sync.Mutex
	rules []*Rule
	free  func(int64) int64
	count map[Op]int
	hook  func(Op, string)
	files map[*faultyFile]struct{} // that are open: a rename changes their names
}

// Wrap puts faults in front of a file system.
func Wrap(fsys vfs.FS) *Faulty {
	return &Faulty{FS: fsys, count: map[Op]int{}, files: map[*faultyFile]struct{}{}}
}

// Strike adds a rule. The first rule that matches decides.
func (f *Faulty) Strike(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &r)
}

// Heal removes all rules.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.free = nil, nil
}

// SetFree replaces what Free answers.
func (f *Faulty) SetFree(free func(real int64) int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = free
}

// SetHook has a function called before every operation; it may take clones.
func (f *Faulty) SetHook(hook func(op Op, name string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Count is how often an operation was called.
func (f *Faulty) Count(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[op]
}

// hit finds the rule that strikes an operation.
func (f *Faulty) hit(op Op, name string) *Rule {
	f.mu.Lock()
	f.count[op]++
	var found *Rule
	for _, r := range f.rules {
		if r.Op != op {
			continue
		}
		if r.Match != "" {
			if ok, err := filepath.Match(r.Match, filepath.Base(name)); err != nil || !ok {
				continue
			}
		}
		r.seen++
		if r.seen <= r.Skip || r.Times > 0 && r.seen > r.Skip+r.Times {
			continue
		}
		found = r
		break
	}
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		hook(op, name)
	}
	if found != nil && found.Delay > 0 {
		time.Sleep(found.Delay)
	}
	return found
}

func (f *Faulty) strike(op Op, name string) error {
	if r := f.hit(op, name); r != nil && r.Err != nil {
		return pathError(string(op), name, r.Err)
	}
	return nil
}

func (f *Faulty) open(op Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := f.strike(op, name); err != nil {
		return nil, err
	}
	inner, err := open(name)
	if err != nil {
		return nil, err
	}
	h := &faultyFile{inner, f, name}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[h] = struct{}{}
	return h, nil
}

// Create implements vfs.FS.
func (f *Faulty) Create(name string) (vfs.File, error) { return f.open(OpCreate, name, f.FS.Create) }

// Open implements vfs.FS.
func (f *Faulty) Open(name string) (vfs.File, error) { return f.open(OpOpen, name, f.FS.Open) }

// OpenWrite implements vfs.FS.
func (f *Faulty) OpenWrite(name string) (vfs.File, error) {
	return f.open(OpOpen, name, f.FS.OpenWrite)
}

// Mkdir implements vfs.FS.
func (f *Faulty) Mkdir(name string) error {
	if err := f.strike(OpMkdir, name); err != nil {
		return err
	}
	return f.FS.Mkdir(name)
}

// Remove implements vfs.FS.
func (f *Faulty) Remove(name string) error {
	if err := f.strike(OpRemove, name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Rename implements vfs.FS.
func (f *Faulty) Rename(from, to string) error {
	if err := f.strike(OpRename, to); err != nil {
		return err
	}
	if err := f.FS.Rename(from, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.files {
		if h.name == from {
			h.name = to
		} else if rest, ok := strings.CutPrefix(h.name, from+"/"); ok {
			h.name = to + "/" + rest
		}
	}
	return nil
}

// SyncDir implements vfs.FS.
func (f *Faulty) SyncDir(name string) error {
	if err := f.strike(OpSyncDir, name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

// Whole implements vfs.FS.
func (f *Faulty) Whole(dir string) (vfs.Whole, error) {
	w, err := f.FS.Whole(dir)
	if err != nil {
		return nil, err
	}
	return faultyWhole{w, f, dir}, nil
}

type faultyWhole struct {
	vfs.Whole
	f   *Faulty
	dir string
}

func (w faultyWhole) SyncAll() error {
	if err := w.f.strike(OpSyncAll, w.dir); err != nil {
		return err
	}
	return w.Whole.SyncAll()
}

// Free implements vfs.FS.
func (f *Faulty) Free(dir string) (int64, error) {
	n, err := f.FS.Free(dir)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.free != nil {
		n = f.free(n)
	}
	return n, err
}

type faultyFile struct {
	vfs.File
	f    *Faulty
	name string // guarded by f.mu
}

// at is the file's name now.
func (h *faultyFile) at() string {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.name
}

func (h *faultyFile) Close() error {
	h.f.mu.Lock()
	delete(h.f.files, h)
	h.f.mu.Unlock()
	return h.File.Close()
}

func (h *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	name := h.at()
	r := h.f.hit(OpRead, name)
	if r != nil && r.Err != nil {
		return 0, pathError("read", name, r.Err)
	}
	n, err := h.File.ReadAt(b, off)
	if r != nil && r.Flip && n > 0 {
		b[0] ^= 1
	}
	return n, err
}

func (h *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	name := h.at()
	r := h.f.hit(OpWrite, name)
	if r == nil || r.Err == nil {
		return h.File.WriteAt(b, off)
	}
	n := 0
	if r.Short {
		var err error
		if n, err = h.File.WriteAt(b[:len(b)/2], off); err != nil {
			return n, err
		}
	}
	return n, pathError("write", name, r.Err)
}

func (h *faultyFile) Sync() error {
	name := h.at()
	r := h.f.hit(OpSync, name)
	if r == nil || r.Err == nil {
		return h.File.Sync()
	}
	if m, ok := h.File.(*file); ok && r.Lost {
		m.forget()
	}
	return pathError("sync", name, r.Err)
}

// forget does what Linux does after a failed fsync: the pages are clean, so
// the next fsync says nothing, and what they held never reaches the disk.
func (f *file) forget() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.writes = nil
}

func (h *faultyFile) Truncate(size int64) error {
	if err := h.f.strike(OpTruncate, h.at()); err != nil {
		return err
	}
	return h.File.Truncate(size)
}

var (
	_ vfs.FS    = (*Memory)(nil)
	_ vfs.FS    = (*Faulty)(nil)
	_ io.Closer = lock{}
)
