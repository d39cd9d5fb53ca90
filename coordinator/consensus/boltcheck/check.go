package boltcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

/*
The parts of the file that matter here, all integers in the machine's order:

	page     id 8 | flags 2 | count 2 | overflow 4 | elements | keys and values
	meta     page head | magic 4 | version 4 | page size 4 | flags 4 |
	         root bucket 16 | freelist 8 | high-water page 8 | transaction 8 | FNV-1a 8
	branch   element: position 4 | key bytes 4 | child page 8
	leaf     element: flags 4 | position 4 | key bytes 4 | value bytes 4
	bucket   (a leaf's value) root page 8 | sequence 8 | with root 0: a leaf page inline
*/
const (
	headBytes   = 16
	elemBytes   = 16
	bucketBytes = 16
	metaBytes   = 64

	branchFlag = 0x01
	leafFlag   = 0x02
	metaFlag   = 0x04
	bucketFlag = 0x01

	magic      = 0xED0CDAED
	version    = 2
	noFreelist = math.MaxUint64

	maxDepth     = 32
	maxPageBytes = 64 << 10
	maxSpan      = 1 << 30 // of one page with its overflow
)

// Visit is called for every key in order, bucket by bucket. The slices are
// valid during the call.
type Visit func(bucket string, key, value []byte) error

// Check reads the whole of a file of the given size. The file must have been
// written without a freelist (NoFreelistSync), and its buckets hold no others.
func Check(r io.ReaderAt, size int64, visit Visit) error {
	c := &checker{r: r, size: size, used: map[uint64]bool{0: true, 1: true}, visit: visit}
	m, err := c.meta()
	if err != nil {
		return err
	}
	c.high = m.high
	if m.freelist != noFreelist {
		return errors.New("the file keeps a freelist: it was not written by this program")
	}
	if need := int64(m.high) * c.pageSize; m.high > uint64(math.MaxInt64/c.pageSize) || need > size {
		return fmt.Errorf("the file is cut short: it has %d bytes of at least %d", size, need)
	}
	return c.page(m.root, nil, nil, 0, c.rootLeaf)
}

type checker struct {
	r        io.ReaderAt
	size     int64
	pageSize int64
	high     uint64 // page ids lie below
	used     map[uint64]bool
	visit    Visit
}

type meta struct{ root, freelist, high, tx uint64 }

// meta reads both meta pages and gives the newer one. bbolt goes on with one
// that is whole; here both must be, for the older one is the state before the
// latest commit.
func (c *checker) meta() (meta, error) {
	first, err := c.metaAt(0)
	if err != nil {
		return meta{}, fmt.Errorf("meta page 0: %w", err)
	}
	second, err := c.metaAt(1)
	if err != nil {
		return meta{}, fmt.Errorf("meta page 1: %w", err)
	}
	switch {
	case first.tx == second.tx+1:
		return first, nil
	case second.tx == first.tx+1:
		return second, nil
	}
	return meta{}, fmt.Errorf("the meta pages are of transactions %d and %d, which do not follow one another", first.tx, second.tx)
}

func (c *checker) metaAt(n int64) (meta, error) {
	b := make([]byte, headBytes+metaBytes)
	if _, err := c.r.ReadAt(b, n*c.pageSize); err != nil {
		return meta{}, fmt.Errorf("cannot be read: %w", err)
	}
	h, body := head(b), b[headBytes:]
	pageSize := int64(binary.NativeEndian.Uint32(body[8:]))
	sum := fnv.New64a()
	sum.Write(body[:56])
	switch {
	case binary.NativeEndian.Uint32(body) != magic:
		return meta{}, errors.New("this is no bbolt file")
	case binary.NativeEndian.Uint32(body[4:]) != version:
		return meta{}, errors.New("unknown format version")
	case sum.Sum64() != binary.NativeEndian.Uint64(body[56:]):
		return meta{}, errors.New("the checksum is wrong")
	case h.flags != metaFlag || h.id != uint64(n):
		return meta{}, errors.New("the page's head is wrong")
	case pageSize < 512 || pageSize > maxPageBytes || n == 1 && pageSize != c.pageSize:
		return meta{}, fmt.Errorf("a page size of %d is not usable", pageSize)
	}
	c.pageSize = pageSize
	m := meta{
		root:     binary.NativeEndian.Uint64(body[16:]),
		freelist: binary.NativeEndian.Uint64(body[32:]),
		high:     binary.NativeEndian.Uint64(body[40:]),
		tx:       binary.NativeEndian.Uint64(body[48:]),
	}
	if m.tx%2 != uint64(n) {
		return meta{}, fmt.Errorf("transaction %d stands in the wrong page", m.tx)
	}
	return m, nil
}

type header struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint32
}

func head(b []byte) header {
	return header{
		id:       binary.NativeEndian.Uint64(b),
		flags:    binary.NativeEndian.Uint16(b[8:]),
		count:    int(binary.NativeEndian.Uint16(b[10:])),
		overflow: binary.NativeEndian.Uint32(b[12:]),
	}
}

// page checks the tree below a page. Its keys lie in [lo, hi); nil is no bound.
func (c *checker) page(id uint64, lo, hi []byte, depth int, leaf func(element) error) error {
	b, h, err := c.read(id)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if depth > maxDepth {
		return fmt.Errorf("page %d: the tree is deeper than %d", id, maxDepth)
	}
	elems, err := elements(b, h, lo, hi)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if used := usedBytes(elems); used <= int64(h.overflow)*c.pageSize {
		return fmt.Errorf("page %d: %d bytes do not need %d more pages", id, used, h.overflow)
	}
	for i, e := range elems {
		if h.flags == leafFlag {
			if err := leaf(e); err != nil {
				return err
			}
			continue
		}
		upper := hi
		if i+1 < len(elems) {
			upper = elems[i+1].key
		}
		if err := c.page(e.child, e.key, upper, depth+1, leaf); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) read(id uint64) ([]byte, header, error) {
	if id < 2 || id >= c.high {
		return nil, header{}, fmt.Errorf("there is no such page below %d", c.high)
	}
	b := make([]byte, c.pageSize)
	if _, err := c.r.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, header{}, err
	}
	h := head(b)
	if h.id != id {
		return nil, header{}, fmt.Errorf("it calls itself page %d", h.id)
	}
	if h.flags != branchFlag && h.flags != leafFlag {
		return nil, header{}, fmt.Errorf("a page of kind %#x does not belong into a tree", h.flags)
	}
	if uint64(h.overflow) >= c.high-id || int64(h.overflow) > maxSpan/c.pageSize {
		return nil, header{}, fmt.Errorf("%d pages from here on are more than there are", h.overflow)
	}
	for i := id; i <= id+uint64(h.overflow); i++ {
		if c.used[i] {
			return nil, header{}, fmt.Errorf("page %d is used twice", i)
		}
		c.used[i] = true
	}
	if h.overflow > 0 {
		rest := make([]byte, int64(h.overflow)*c.pageSize)
		if _, err := c.r.ReadAt(rest, int64(id+1)*c.pageSize); err != nil {
			return nil, header{}, err
		}
		b = append(b, rest...)
	}
	return b, h, nil
}

// rootLeaf takes one bucket of the root.
func (c *checker) rootLeaf(e element) error {
	name := string(e.key)
	if e.flags != bucketFlag || len(e.value) < bucketBytes {
		return fmt.Errorf("%q in the root is no bucket", name)
	}
	visit := func(e element) error {
		if e.flags != 0 {
			return fmt.Errorf("bucket %q holds a bucket", name)
		}
		return c.visit(name, e.key, e.value)
	}
	root := binary.NativeEndian.Uint64(e.value)
	if root != 0 {
		return c.page(root, nil, nil, 0, visit)
	}
	inline := e.value[bucketBytes:]
	if len(inline) < headBytes {
		return fmt.Errorf("bucket %q is cut short", name)
	}
	h := head(inline)
	if h.flags != leafFlag || h.overflow != 0 {
		return fmt.Errorf("bucket %q has a wrong head", name)
	}
	elems, err := elements(inline, h, nil, nil)
	if err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	if usedBytes(elems) != int64(len(inline)) {
		return fmt.Errorf("bucket %q is not exactly filled", name)
	}
	for _, e := range elems {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

type element struct {
	flags uint32
	child uint64
	key   []byte
	value []byte
}

// elements reads a page's elements. bbolt packs keys and values without a gap,
// in order, straight behind the elements; anything else is damage.
func elements(b []byte, h header, lo, hi []byte) ([]element, error) {
	if h.flags == branchFlag && h.count == 0 {
		return nil, errors.New("a branch has no child")
	}
	at := headBytes + elemBytes*h.count
	if at > len(b) {
		return nil, fmt.Errorf("%d elements do not fit", h.count)
	}
	elems := make([]element, h.count)
	for i := range elems {
		start := headBytes + elemBytes*i
		raw := b[start : start+elemBytes]
		e := &elems[i]
		var pos, ksize, vsize uint32
		if h.flags == branchFlag {
			pos, ksize = binary.NativeEndian.Uint32(raw), binary.NativeEndian.Uint32(raw[4:])
			e.child = binary.NativeEndian.Uint64(raw[8:])
		} else {
			e.flags, pos = binary.NativeEndian.Uint32(raw), binary.NativeEndian.Uint32(raw[4:])
			ksize, vsize = binary.NativeEndian.Uint32(raw[8:]), binary.NativeEndian.Uint32(raw[12:])
		}
		if int64(start)+int64(pos) != int64(at) {
			return nil, fmt.Errorf("element %d of %d is not where it belongs", i, h.count)
		}
		end := int64(at) + int64(ksize) + int64(vsize)
		if ksize == 0 || end > int64(len(b)) {
			return nil, fmt.Errorf("element %d of %d has impossible lengths", i, h.count)
		}
		e.key = b[at : at+int(ksize)]
		e.value = b[at+int(ksize) : end]
		at = int(end)
		if i > 0 && bytes.Compare(elems[i-1].key, e.key) >= 0 ||
			i == 0 && lo != nil && bytes.Compare(e.key, lo) < 0 ||
			hi != nil && bytes.Compare(e.key, hi) >= 0 {
			return nil, fmt.Errorf("key %d of %d is out of order", i, h.count)
		}
	}
	return elems, nil
}

func usedBytes(elems []element) int64 {
	used := int64(headBytes + elemBytes*len(elems))
	for _, e := range elems {
		used += int64(len(e.key) + len(e.value))
	}
	return used
}
