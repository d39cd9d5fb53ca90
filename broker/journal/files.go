package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tidewire/internal/vfs"
)

type openFile struct {
	name string
	head head
	file vfs.File
}

type fileRef struct {
	name string
	seq  uint64
	size int64
}

// maxFree bounds the released files that wait to be used again.
const maxFree = 3

// fileSet knows the journal's files but the current one: those that replay
// would still need, the released ones, and the next one.
type fileSet struct {
	cfg   Config
	ready chan *openFile // unbuffered: the next file is handed over
	poke  chan struct{}  // cap 1: files were released
	gone  chan struct{}  // closed when nothing is prepared any more

	held      atomic.Int64 // bytes of the files on the disk, whatever state they are in
	preparing atomic.Int64 // bytes that the file in preparation will take
	recycled  atomic.Int64 // files that were used again

	mu      sync.Mutex
	used    []fileRef // ascending
	free    []fileRef
	nextSeq uint64
}

func (s *fileSet) init(cfg Config, scan *Scan) {
	s.cfg = cfg
	s.ready = make(chan *openFile)
	s.gone = make(chan struct{})
	s.poke = make(chan struct{}, 1)
	s.nextSeq = 1
	for _, f := range scan.old {
		s.free = append(s.free, fileRef{f.name, f.seq, f.size})
		s.held.Add(f.size)
	}
	for _, f := range scan.files {
		s.used = append(s.used, fileRef{f.name, f.seq, f.size})
		s.nextSeq = f.seq + 1
		s.held.Add(f.size)
	}
}

// prepared opens the newest file if it was prepared but never written to. Then
// it may be used; any other file has a tail, and one goes on in a fresh one.
func (s *fileSet) prepared(scan *Scan) (*openFile, error) {
	if len(scan.files) == 0 {
		return nil, nil
	}
	last := scan.files[len(scan.files)-1]
	if len(last.frames) > 0 {
		return nil, nil
	}
	f, err := s.cfg.FS.OpenWrite(last.name)
	if err != nil {
		return nil, err
	}
	s.used = s.used[:len(s.used)-1]
	return &openFile{last.name, last.head, f}, nil
}

// lastWait is how long the journal waits for a file after its context ended:
// what was queued by then is kept if at all possible.
const lastWait = 5 * time.Second

// take waits for the next file.
func (s *fileSet) take(ctx context.Context) (*openFile, error) {
	select {
	case f := <-s.ready:
		return f, nil
	case <-s.gone:
	case <-ctx.Done():
		select {
		case f := <-s.ready:
			return f, nil
		case <-s.gone:
		case <-time.After(lastWait):
		}
	}
	return nil, fmt.Errorf("no journal file could be prepared before the end: %w", errStopped)
}

func (s *fileSet) retire(f *openFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(s.used, fileRef{f.name, f.head.file, f.head.size})
}

func (s *fileSet) waitSpace(ctx context.Context, cause error) error {
	s.cfg.Logger.Warn("journal waits for disk space", "err", cause)
	select {
	case <-time.After(s.cfg.RetrySpace):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w while it waited for space: %w", errStopped, cause)
	}
}

// Release gives up every file that lies wholly before p: a durable checkpoint
// says that replay starts there at the earliest.
func (j *Journal) Release(p Position) {
	s := &j.files
	s.mu.Lock()
	n := 0
	for n < len(s.used) && s.used[n].seq < p.File() {
		n++
	}
	s.free = append(s.free, s.used[:n]...)
	s.used = append(s.used[:0], s.used[n:]...)
	s.mu.Unlock()
	if n > 0 {
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
}

// Files is the number of files that replay would need, the current one not counted.
func (j *Journal) Files() int {
	j.files.mu.Lock()
	defer j.files.mu.Unlock()
	return len(j.files.used)
}

// prepareLoop keeps the next file ready and the number of released ones small.
func (j *Journal) prepareLoop(ctx context.Context, first bool) error {
	s := &j.files
	defer close(s.gone)
	size := s.cfg.FileBytes
	if first {
		size = s.cfg.FirstBytes // somebody waits: be quick
	}
	for {
		f, err := s.prepare(size)
		s.preparing.Store(0)
		passes := vfs.IsNoSpace(err) || vfs.IsNoFiles(err)
		if passes {
			j.setLack(err)
		} else {
			j.setLack(nil)
		}
		switch {
		case err == nil:
			size = s.cfg.FileBytes
			if !s.offer(ctx, f) {
				return f.file.Close()
			}
			continue
		case !passes:
			err = fmt.Errorf("prepare a journal file: %w", err)
			j.fail(err)
			return err
		}
		select {
		case <-time.After(s.cfg.RetrySpace):
		case <-s.poke:
		case <-ctx.Done():
			return nil
		}
	}
}

// setLack notes what keeps the next file from being prepared; nil: nothing.
func (j *Journal) setLack(lack error) {
	j.mu.Lock()
	was := j.lack
	j.lack = lack
	j.mu.Unlock()
	switch {
	case lack != nil && (was == nil || vfs.IsNoFiles(lack) != vfs.IsNoFiles(was)):
		j.cfg.Logger.Warn("the next journal file cannot be prepared for now; it is tried again, and appends will be refused", "err", lack, "free", freeBytes(j.cfg))
	case lack == nil && was != nil:
		j.cfg.Logger.Info("the journal goes on: what it lacked is back")
	}
}

func freeBytes(cfg Config) int64 {
	n, err := cfg.FS.Free(cfg.Dir)
	if err != nil {
		return -1
	}
	return n
}

// offer hands the file over and meanwhile unlinks surplus files.
func (s *fileSet) offer(ctx context.Context, f *openFile) bool {
	for {
		s.trim()
		select {
		case s.ready <- f:
			return true
		case <-s.poke:
		case <-ctx.Done():
			return false
		}
	}
}

// trim unlinks released files beyond those worth keeping. A failure only costs
// space; the next start finds them again.
func (s *fileSet) trim() {
	s.mu.Lock()
	var surplus []fileRef
	keep := s.free[:0]
	for i, f := range s.free {
		if f.size == s.cfg.FileBytes && len(s.free)-i <= maxFree {
			keep = append(keep, f)
		} else {
			surplus = append(surplus, f)
		}
	}
	s.free = keep
	s.mu.Unlock()
	for _, f := range surplus {
		if err := s.cfg.FS.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Logger.Warn("a released journal file stays", "file", f.name, "err", err)
			continue
		}
		s.held.Add(-f.size)
	}
}

// prepare makes the next file: from a released one, or filled with zeros. It
// gets its name only once its head and its size are durable, and its place in
// the folder is durable before it is used.
func (s *fileSet) prepare(size int64) (*openFile, error) {
	s.mu.Lock()
	seq := s.nextSeq
	var old fileRef
	for i, f := range s.free {
		if f.size == size {
			old = f
			s.free = append(s.free[:i], s.free[i+1:]...)
			break
		}
	}
	s.mu.Unlock()

	h := head{size: size, file: seq, storage: s.cfg.Storage}
	if _, err := rand.Read(h.salt[:]); err != nil {
		return nil, err
	}
	spare := filepath.Join(s.cfg.Dir, spareName)
	f, err := s.blank(spare, old, size)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(h.encode(), 0)
	if err == nil {
		err = f.Sync()
	}
	name := filepath.Join(s.cfg.Dir, fileName(seq))
	if err == nil {
		err = s.cfg.FS.Rename(spare, name)
	}
	if err != nil {
		// Nothing was in it: give its space back, whatever it was.
		s.held.Add(-old.size)
		return nil, errors.Join(err, f.Close(), s.cfg.FS.Remove(spare))
	}
	if err := s.cfg.FS.SyncDir(s.cfg.Dir); err != nil {
		return nil, errors.Join(syncFailed(err), f.Close())
	}
	s.mu.Lock()
	s.nextSeq = seq + 1
	s.mu.Unlock()
	s.held.Add(size - old.size)
	return &openFile{name, h, f}, nil
}

// blank opens a file of the right size under the spare name. A released file
// keeps its bytes: with a new salt none of them passes for a frame. Its old
// name is gone from the disk before its head changes.
func (s *fileSet) blank(spare string, old fileRef, size int64) (vfs.File, error) {
	fsys := s.cfg.FS
	if old.name != "" {
		s.recycled.Add(1)
		if err := fsys.Rename(old.name, spare); err != nil {
			return nil, err
		}
		if err := fsys.SyncDir(s.cfg.Dir); err != nil {
			return nil, syncFailed(err)
		}
		return fsys.OpenWrite(spare)
	}
	if err := fsys.Remove(spare); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// A file that cannot be finished must not take, for a moment, the last space
	// that others make do with.
	if free, err := fsys.Free(s.cfg.Dir); err == nil && free < size+size/8 {
		return nil, fmt.Errorf("%d bytes are free, a journal file takes %d: %w", free, size, syscall.ENOSPC)
	}
	s.preparing.Store(size)
	f, err := fsys.Create(spare)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(size, 1<<20))
	for off := int64(0); off < size; off += int64(len(zeros)) {
		_, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err == nil && off > 0 && off%fillBytes == 0 {
			err = f.Sync()
		}
		if err != nil {
			return nil, errors.Join(err, f.Close(), fsys.Remove(spare))
		}
	}
	return f, nil
}

// fillBytes is how much of a new file the disk gets at once: commits that are
// synced meanwhile wait behind it.
const fillBytes = 4 << 20

// syncFailed hides a lack of space: what a sync lost does not come back with it.
// Without an open file nothing was synced, and nothing lost.
func syncFailed(err error) error {
	if vfs.IsNoFiles(err) {
		return fmt.Errorf("sync the journal's folder: %w", err)
	}
	return fmt.Errorf("sync the journal's folder: %v", err)
}

// Found makes the first file of a new data folder, so that a folder without any
// journal file is known to have lost it.
func Found(cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("journal config: %w", err)
	}
	s := fileSet{cfg: cfg, nextSeq: 1}
	f, err := s.prepare(cfg.FirstBytes)
	if err != nil {
		return fmt.Errorf("prepare the first journal file: %w", err)
	}
	return f.file.Close()
}

// Held is what the journal's files take on the disk: a current one and those
// beside it that are kept, empty or not.
func (j *Journal) Held() int64 { return j.files.held.Load() }

// Preparing is the number of bytes that are being taken for the next file.
func (j *Journal) Preparing() int64 { return j.files.preparing.Load() }

// Recycled is how many released files were used again since Open.
func (j *Journal) Recycled() int64 { return j.files.recycled.Load() }
