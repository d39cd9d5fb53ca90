package storage

import (
	"errors"
	"fmt"
	"io"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// badBatch says where a segment stops being what a leader wrote.
type badBatch struct {
	pos    int64
	offset ident.Offset // the batch that should be there
	err    error
}

func (b *badBatch) Error() string {
	return fmt.Sprintf("byte %d, offset %d: %v", b.pos, b.offset, b.err)
}

func (b *badBatch) Unwrap() error { return b.err }

// content says that bytes were read and are wrong; else they could not be read.
func (b *badBatch) content() bool {
	return b.err == nil || errors.Is(b.err, record.ErrCorrupt) || errors.Is(b.err, record.ErrShort) || errors.Is(b.err, errOutOfPlace)
}

// walker reads the batches of a segment file one after the other, each checked
// against its checksums, its partition and the offset it has to begin at.
type walker struct {
	f    io.ReaderAt
	part ident.Partition
	pos  int64        // of the next batch
	end  int64        // bytes of the file that count
	next ident.Offset // that the next batch has to begin at

	buf    []byte // read ahead, buf[0] is at bufPos
	bufPos int64
}

const walkBytes = 256 << 10

// step reads the next batch; io.EOF at the end. The batch may be kept.
func (w *walker) step() (record.Batch, record.Header, error) {
	if w.pos >= w.end {
		return nil, record.Header{}, io.EOF
	}
	raw, err := w.peek(record.HeaderBytes)
	if err != nil {
		return nil, record.Header{}, err
	}
	h, err := record.ParseHeader(raw)
	if err != nil {
		return nil, h, w.bad(err)
	}
	if int64(h.Length) > w.end-w.pos {
		return nil, h, w.bad(record.ErrShort)
	}
	if raw, err = w.peek(h.Length); err != nil {
		return nil, h, err
	}
	b := record.Batch(raw[:h.Length:h.Length])
	switch err := b.Verify(); {
	case err != nil:
		return nil, h, w.bad(err)
	case h.Partition != w.part:
		return nil, h, w.bad(fmt.Errorf("%w: it belongs to partition %s", record.ErrCorrupt, h.Partition))
	case h.Base != w.next:
		return nil, h, w.bad(fmt.Errorf("%w: it begins at offset %d", record.ErrCorrupt, h.Base))
	}
	w.pos += int64(h.Length)
	w.next = h.Next()
	return b, h, nil
}

// peek gives n bytes at pos, reading on when they are not at hand. A new buffer
// is made each time, because batches of the old one may be kept.
func (w *walker) peek(n int) ([]byte, error) {
	if off := w.pos - w.bufPos; w.buf != nil && off >= 0 && off+int64(n) <= int64(len(w.buf)) {
		return w.buf[off:], nil
	}
	size := min(int64(max(n, walkBytes)), w.end-w.pos)
	w.buf, w.bufPos = make([]byte, size), w.pos
	read, err := w.f.ReadAt(w.buf, w.pos)
	w.buf = w.buf[:read]
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if read < n {
		return nil, w.bad(fmt.Errorf("%w: the file ends at byte %d", record.ErrShort, w.pos+int64(read)))
	}
	return w.buf, nil
}

func (w *walker) bad(err error) error {
	return &badBatch{w.pos, w.next, err}
}

// verifySegment walks to the end of a segment from a place in it and makes the
// index of what it passes. A *badBatch says where it had to stop.
func verifySegment(f vfs.File, p ident.Partition, ix *indexer, at indexEntry, end int64) (next ident.Offset, err error) {
	w := &walker{f: f, part: p, pos: at.pos, end: end, next: at.offset}
	for {
		pos := w.pos
		_, h, err := w.step()
		if errors.Is(err, io.EOF) {
			return w.next, nil
		}
		if err != nil {
			return w.next, err
		}
		ix.add(pos, h)
	}
}
