package storage

import (
	"container/list"
	"encoding/binary"
	"errors"
	"io/fs"
	"sort"
	"sync"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// indexEntry says what lies at a place of a segment file. There is one for the
// first batch, then one about every IndexBytes and at each change of epoch.
//
//	offset size   in the file
//	 0      8     offset of the batch
//	 8      8     its byte in the segment file
//	16      8     its timestamp
//	24      4     its epoch
//	28      4     CRC-32C of partition, base offset of the segment and bytes 0-28
//
// Each entry stands for itself, so a file is appended to without being made
// anew. It is a cache: whatever is wrong with it, the segment tells.
type indexEntry struct {
	offset ident.Offset
	pos    int64
	ms     int64
	epoch  ident.Epoch
}

const indexEntryBytes = 32

// indexSeed makes entries of another partition or segment fail.
func indexSeed(p ident.Partition, base ident.Offset) uint32 {
	b := appendPartition(make([]byte, 0, partitionBytes+8), p)
	return record.Checksum(binary.LittleEndian.AppendUint64(b, uint64(base)))
}

func appendIndex(b []byte, seed uint32, e indexEntry) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = le.AppendUint64(b, uint64(e.offset))
	b = le.AppendUint64(b, uint64(e.pos))
	b = le.AppendUint64(b, uint64(e.ms))
	b = le.AppendUint32(b, uint32(e.epoch))
	return le.AppendUint32(b, record.ChecksumMore(seed, b[start:]))
}

// decodeIndex reads entries as long as they are good: checked, rising, and
// inside the segment.
func decodeIndex(b []byte, seed uint32, base ident.Offset, bytes int64) (entries []indexEntry) {
	for ; len(b) >= indexEntryBytes; b = b[indexEntryBytes:] {
		e, ok := decodeEntry(b, seed, bytes)
		if !ok {
			break
		}
		if n := len(entries); n == 0 {
			if e.pos != 0 || e.offset != base {
				break
			}
		} else if last := entries[n-1]; e.pos <= last.pos || e.offset < last.offset || e.ms < last.ms || e.epoch < last.epoch {
			break
		}
		entries = append(entries, e)
	}
	return entries
}

// decodeEntry reads one entry; it has to be good and inside the segment.
func decodeEntry(b []byte, seed uint32, bytes int64) (indexEntry, bool) {
	le := binary.LittleEndian
	e := indexEntry{ident.Offset(le.Uint64(b)), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:])), ident.Epoch(le.Uint32(b[24:]))}
	ok := record.ChecksumMore(seed, b[:28]) == le.Uint32(b[28:]) && e.pos >= 0 && e.pos < bytes
	return e, ok
}

// indexer decides which batches get an entry.
type indexer struct {
	every   int64
	last    indexEntry
	any     bool
	entries []indexEntry // made since it was last emptied
}

func (x *indexer) add(pos int64, h record.Header) {
	if x.any && pos-x.last.pos < x.every && h.Epoch == x.last.epoch {
		return
	}
	x.last, x.any = indexEntry{h.Base, pos, h.Timestamp, h.Epoch}, true
	x.entries = append(x.entries, x.last)
}

// floor is the last entry at or before an offset.
func floor(entries []indexEntry, o ident.Offset) (indexEntry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].offset > o })
	if i == 0 {
		return indexEntry{}, false
	}
	return entries[i-1], true
}

// before is the last entry with a timestamp below ms.
func before(entries []indexEntry, ms int64) (indexEntry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].ms >= ms })
	if i == 0 {
		return indexEntry{}, false
	}
	return entries[i-1], true
}

// writeIndex appends entries behind those that the file has already.
func writeIndex(fsys vfs.FS, name string, seed uint32, have int, entries []indexEntry) error {
	f, err := fsys.OpenWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.Create(name)
	}
	if err != nil {
		return err
	}
	b := make([]byte, 0, len(entries)*indexEntryBytes)
	for _, e := range entries {
		b = appendIndex(b, seed, e)
	}
	_, err = f.WriteAt(b, int64(have)*indexEntryBytes)
	if err == nil {
		err = f.Truncate(int64(have+len(entries)) * indexEntryBytes)
	}
	return errors.Join(err, f.Close())
}

// indexCache keeps the indexes of segments that are being read, within a
// bound of memory.
type indexCache struct {
	max int // entries

	mu     sync.Mutex
	byName map[string]*cachedIndex
	lru    list.List
	size   int
}

type cachedIndex struct {
	name    string
	entries []indexEntry
	elem    *list.Element
}

func newIndexCache(bytes int64) *indexCache {
	return &indexCache{max: max(1, int(bytes/indexEntryBytes)), byName: map[string]*cachedIndex{}}
}

func (c *indexCache) get(name string) ([]indexEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.byName[name]
	if !ok {
		return nil, false
	}
	c.lru.MoveToFront(x.elem)
	return x.entries, true
}

func (c *indexCache) put(name string, entries []indexEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(name)
	x := &cachedIndex{name: name, entries: entries}
	x.elem = c.lru.PushFront(x)
	c.byName[name] = x
	c.size += len(entries)
	for c.size > c.max && c.lru.Len() > 1 {
		c.dropLocked(c.lru.Back().Value.(*cachedIndex).name)
	}
}

func (c *indexCache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(name)
}

func (c *indexCache) dropLocked(name string) {
	if x, ok := c.byName[name]; ok {
		c.lru.Remove(x.elem)
		delete(c.byName, name)
		c.size -= len(x.entries)
	}
}
