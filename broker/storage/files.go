package storage

import (
	"container/list"
	"errors"
	"sync"
	"sync/atomic"

	"tidewire/internal/vfs"
)

// fileCache keeps segment files open, the most recently used ones, so that
// thousands of partitions do not cost thousands of descriptors.
type fileCache struct {
	fsys   vfs.FS
	max    int
	failed func(error) // a sync at closing failed: the disk cannot be trusted
	owe    func() bool // a file goes with unsynced bytes: whether all is synced later

	mu     sync.Mutex
	byName map[string]*cachedFile
	lru    list.List // of *cachedFile, most recent first
	closed bool
}

// cachedFile is a file in use or ready to be. Its refs and gone are the cache's.
type cachedFile struct {
	vfs.File
	name  string
	elem  *list.Element
	refs  int
	gone  bool // forgotten: closed with its last user
	once  sync.Once
	err   error
	dirty atomic.Bool // written to through this handle since its last sync
}

func newFileCache(fsys vfs.FS, limit int, failed func(error), owe func() bool) *fileCache {
	return &fileCache{fsys: fsys, max: limit, failed: failed, owe: owe, byName: map[string]*cachedFile{}}
}

var errClosed = errors.New("the data folder is closed")

// acquire opens a file or takes the open one. Give it back with release.
func (c *fileCache) acquire(name string) (*cachedFile, error) {
	for {
		f, mine, err := c.enter(name)
		if err != nil {
			return nil, err
		}
		if f.err == nil {
			return f, nil
		}
		c.mu.Lock()
		c.dropLocked(f) // this one alone: another may have opened the name since
		c.mu.Unlock()
		err = f.err
		c.release(f)
		if mine {
			return nil, err
		}
		// What somebody met who asked earlier may not be true any more.
	}
}

// enter takes a file's place in the cache. mine says that this call opened it.
func (c *fileCache) enter(name string) (f *cachedFile, mine bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, errClosed
	}
	f = c.byName[name]
	if f == nil {
		f = &cachedFile{name: name}
		f.elem = c.lru.PushFront(f)
		c.byName[name] = f
	} else {
		c.lru.MoveToFront(f.elem)
	}
	f.refs++
	victims := c.evictLocked()
	c.mu.Unlock()
	c.closeAll(victims)

	f.once.Do(func() {
		mine = true
		f.File, f.err = c.fsys.OpenWrite(name)
	})
	return f, mine, nil
}

// release gives a file back.
func (c *fileCache) release(f *cachedFile) {
	c.mu.Lock()
	f.refs--
	var victims []*cachedFile
	if f.refs == 0 && f.gone {
		victims = append(victims, f)
	}
	victims = append(victims, c.evictLocked()...)
	c.mu.Unlock()
	c.closeAll(victims)
}

// evictLocked takes the least recently used files that nobody uses out of the
// cache while it is too full.
func (c *fileCache) evictLocked() (victims []*cachedFile) {
	for e := c.lru.Back(); e != nil && len(c.byName) > c.max; {
		f := e.Value.(*cachedFile)
		e = e.Prev()
		if f.refs == 0 {
			c.dropLocked(f)
			victims = append(victims, f)
		}
	}
	return victims
}

func (c *fileCache) dropLocked(f *cachedFile) {
	if c.byName[f.name] == f {
		delete(c.byName, f.name)
		c.lru.Remove(f.elem)
	}
	f.gone = true
}

// forget drops a file that was removed or replaced. Whoever reads it finishes.
func (c *fileCache) forget(name string) {
	c.mu.Lock()
	f := c.byName[name]
	if f == nil {
		c.mu.Unlock()
		return
	}
	c.dropLocked(f)
	f.dirty.Store(false) // nobody needs its bytes any more
	idle := f.refs == 0
	c.mu.Unlock()
	if idle {
		c.closeAll([]*cachedFile{f})
	}
}

// clean notes that a file was made durable otherwise. Nobody writes to it meanwhile.
func (c *fileCache) clean(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.byName[name]; f != nil {
		f.dirty.Store(false)
	}
}

// closeAll closes files that left the cache. One with unsynced bytes is synced
// first, or the file system as a whole later: an error of its write-back might
// show on no other handle.
func (c *fileCache) closeAll(files []*cachedFile) {
	for _, f := range files {
		if f.File == nil {
			continue
		}
		var err error
		if f.dirty.Load() && !c.owe() {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			c.failed(err)
		}
	}
}

// open is the number of open files.
func (c *fileCache) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byName)
}

// close closes what nobody uses and refuses everything from now on. What no
// checkpoint made durable is in the journal.
func (c *fileCache) close() {
	c.mu.Lock()
	c.closed = true
	var victims []*cachedFile
	for _, f := range c.byName {
		c.dropLocked(f)
		f.dirty.Store(false)
		if f.refs == 0 {
			victims = append(victims, f)
		}
	}
	c.mu.Unlock()
	c.closeAll(victims)
}
