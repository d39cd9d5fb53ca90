package faultfs

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sort"
	"sync"
	"syscall"

	"tidewire/internal/vfs"
)

// Memory is a file system in memory. Make it with New.
type Memory struct {
	mu       sync.Mutex
	root     *node
	pending  []dirOp // not durable yet, in order
	capacity int64   // 0: none
	used     int64
	locks    map[string]bool
}

// node is a file or a folder.
type node struct {
	// a folder
	entries map[string]*node // nil for a file
	durable map[string]*node // as of the last sync

	// a file
	data   []byte
	synced []byte  // as of the last sync; shares nothing with data
	writes []write // since then, in order
}

// write is one change of a file that was not synced.
type write struct {
	off  int64
	data []byte // nil for a truncation to off
}

// dirOp is a change of folders that was not synced everywhere it has to be.
type dirOp struct {
	sets  []dirSet
	needs map[*node]bool // folders whose sync is still missing
}

type dirSet struct {
	dir  *node
	name string
	to   *node // nil: the entry goes
}

// New makes an empty file system. capacity bounds the bytes of all files; 0
// means no bound.
func New(capacity int64) *Memory {
	return &Memory{root: newFolder(), capacity: capacity, locks: map[string]bool{}}
}

func newFolder() *node {
	return &node{entries: map[string]*node{}, durable: map[string]*node{}}
}

// SetCapacity changes the bound.
func (m *Memory) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

func split(name string) []string {
	var parts []string
	for _, p := range splitPath(filepath.Clean(name)) {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

func splitPath(name string) (parts []string) {
	for start, i := 0, 0; i <= len(name); i++ {
		if i == len(name) || name[i] == filepath.Separator {
			parts = append(parts, name[start:i])
			start = i + 1
		}
	}
	return parts
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Memory) find(name string) *node {
	n := m.root
	for _, p := range split(name) {
		if n = n.entries[p]; n == nil {
			return nil
		}
	}
	return n
}

// parent gives the folder a name lies in, and its last element.
func (m *Memory) parent(op, name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", pathError(op, name, fs.ErrInvalid)
	}
	dir := m.find(filepath.Dir(filepath.Clean(name)))
	if dir == nil || dir.entries == nil {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return dir, parts[len(parts)-1], nil
}

// change applies sets to the live folders and remembers them as pending.
func (m *Memory) change(sets ...dirSet) {
	op := dirOp{sets: sets, needs: map[*node]bool{}}
	for _, s := range sets {
		apply(s.dir.entries, s)
		op.needs[s.dir] = true
	}
	m.pending = append(m.pending, op)
}

func apply(entries map[string]*node, s dirSet) {
	if s.to == nil {
		delete(entries, s.name)
	} else {
		entries[s.name] = s.to
	}
}

// Create implements vfs.FS.
func (m *Memory) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.entries[base] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	n := &node{}
	m.change(dirSet{dir, base, n})
	return &file{m, n, name, true}, nil
}

// Open implements vfs.FS.
func (m *Memory) Open(name string) (vfs.File, error) { return m.open(name, false) }

// OpenWrite implements vfs.FS.
func (m *Memory) OpenWrite(name string) (vfs.File, error) { return m.open(name, true) }

func (m *Memory) open(name string, write bool) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	switch {
	case n == nil:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n.entries != nil:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return &file{m, n, name, write}, nil
}

// Mkdir implements vfs.FS.
func (m *Memory) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("mkdir", name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return pathError("mkdir", name, fs.ErrExist)
	}
	m.change(dirSet{dir, base, newFolder()})
	return nil
}

// Remove implements vfs.FS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		return pathError("remove", name, fs.ErrNotExist)
	case len(n.entries) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.used -= int64(len(n.data)) // as if nobody held it open
	m.change(dirSet{dir, base, nil})
	return nil
}

// Rename implements vfs.FS.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fromDir, fromBase, err := m.parent("rename", from)
	if err != nil {
		return err
	}
	toDir, toBase, err := m.parent("rename", to)
	if err != nil {
		return err
	}
	n := fromDir.entries[fromBase]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old := toDir.entries[toBase]; old != nil && old != n {
		if len(old.entries) > 0 {
			return pathError("rename", to, syscall.ENOTEMPTY)
		}
		m.used -= int64(len(old.data))
	}
	m.change(dirSet{fromDir, fromBase, nil}, dirSet{toDir, toBase, n})
	return nil
}

// ReadDir implements vfs.FS.
func (m *Memory) ReadDir(name string) ([]vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || n.entries == nil {
		return nil, pathError("readdir", name, fs.ErrNotExist)
	}
	var infos []vfs.Info
	for base, c := range n.entries {
		infos = append(infos, vfs.Info{Name: base, Size: int64(len(c.data)), IsDir: c.entries != nil})
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].Name < infos[j].Name })
	return infos, nil
}

// Stat implements vfs.FS.
func (m *Memory) Stat(name string) (vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return vfs.Info{}, pathError("stat", name, fs.ErrNotExist)
	}
	return vfs.Info{Name: filepath.Base(name), Size: int64(len(n.data)), IsDir: n.entries != nil}, nil
}

// SyncDir implements vfs.FS.
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || n.entries == nil {
		return pathError("sync", name, fs.ErrNotExist)
	}
	left := m.pending[:0]
	for _, op := range m.pending {
		delete(op.needs, n)
		if len(op.needs) > 0 {
			left = append(left, op)
			continue
		}
		for _, s := range op.sets {
			apply(s.dir.durable, s)
		}
	}
	m.pending = left
	return nil
}

type whole struct{ m *Memory }

// Whole implements vfs.FS.
func (m *Memory) Whole(string) (vfs.Whole, error) { return whole{m}, nil }

// SyncAll implements vfs.Whole.
func (w whole) SyncAll() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, op := range w.m.pending {
		for _, s := range op.sets {
			apply(s.dir.durable, s)
		}
	}
	w.m.pending = nil
	w.m.root.syncAll()
	return nil
}

// syncAll makes all that can be reached durable.
func (n *node) syncAll() {
	n.sync()
	for _, e := range n.entries {
		e.syncAll()
	}
}

// Close implements vfs.Whole.
func (w whole) Close() error { return nil }

// Free implements vfs.FS.
func (m *Memory) Free(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return 1 << 40, nil
	}
	return max(0, m.capacity-m.used), nil
}

type lock struct {
	m    *Memory
	name string
}

func (l lock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// Lock implements vfs.FS.
func (m *Memory) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, fmt.Errorf("%s: %w", name, vfs.ErrLocked)
	}
	dir, base, err := m.parent("lock", name)
	if err != nil {
		return nil, err
	}
	if dir.entries[base] == nil {
		m.change(dirSet{dir, base, &node{}})
	}
	m.locks[name] = true
	return lock{m, name}, nil
}

type file struct {
	m     *Memory
	n     *node
	name  string
	write bool
}

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.write {
		return 0, pathError("write", f.name, fs.ErrPermission)
	}
	short := false
	if grow := off + int64(len(b)) - int64(len(f.n.data)); grow > 0 && f.m.capacity > 0 {
		if left := f.m.capacity - f.m.used; grow > left {
			b, short = b[:max(0, int64(len(b))-(grow-max(0, left)))], true
		}
	}
	if len(b) > 0 {
		was := len(f.n.data)
		f.n.data = patch(f.n.data, write{off, b})
		f.m.used += int64(len(f.n.data) - was)
		f.n.writes = append(f.n.writes, write{off, append([]byte(nil), b...)})
	}
	if short {
		return len(b), pathError("write", f.name, syscall.ENOSPC)
	}
	return len(b), nil
}

// patch applies a write to contents.
func patch(data []byte, w write) []byte {
	if w.data == nil {
		if w.off <= int64(len(data)) {
			return data[:w.off:w.off]
		}
		return append(data, make([]byte, w.off-int64(len(data)))...)
	}
	if end := w.off + int64(len(w.data)); end > int64(len(data)) {
		data = append(data, make([]byte, end-int64(len(data)))...)
	}
	copy(data[w.off:], w.data)
	return data
}

func (f *file) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

// sync makes the contents durable.
func (n *node) sync() {
	for _, w := range n.writes {
		n.synced = patch(n.synced, w)
	}
	n.writes = nil
}

func (f *file) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.write {
		return pathError("truncate", f.name, fs.ErrPermission)
	}
	f.m.used += size - int64(len(f.n.data))
	w := write{off: size}
	f.n.data = patch(f.n.data, w)
	f.n.writes = append(f.n.writes, w)
	return nil
}

func (f *file) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *file) Close() error { return nil }
