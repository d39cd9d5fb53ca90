package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

const markFile = "mark"

/*
mark remembers the last index of the log beside raft.db, in a file of its own:

	offset 0     magic "TWMK" 4 | sequence 8 | last index 8 | CRC-32C 4
	offset 512   the same; the two are written in turn, the higher sequence counts

It is written after each commit and not fsynced: kill -9 cannot take it back, a
power cut may leave it behind, and then it only demands less. It demands that the
log reaches at least as far. What it guards against is a raft.db that is whole but
older: a damaged pointer that leads to an earlier root, a file restored alone.
*/
type mark struct {
	mu   sync.Mutex
	file *os.File
	seq  uint64
	last uint64
}

const (
	markBytes  = 24
	markStride = 512
)

// readMark gives the last index the mark knows; ok is false where it has none.
func readMark(dir string) (seq, last uint64, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("read mark: %w", err)
	}
	for _, at := range []int{0, markStride} {
		if len(b) < at+markBytes {
			continue
		}
		s := b[at : at+markBytes]
		if string(s[:4]) != "TWMK" || crc32.Checksum(s[:20], castagnoli()) != binary.BigEndian.Uint32(s[20:]) {
			continue
		}
		if n := binary.BigEndian.Uint64(s[4:]); !ok || n > seq {
			seq, last, ok = n, binary.BigEndian.Uint64(s[12:]), true
		}
	}
	return seq, last, ok, nil
}

// openMark opens or makes the mark and sets it to last.
func openMark(dir string, last uint64) (*mark, error) {
	seq, _, _, err := readMark(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, markFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open mark: %w", err)
	}
	m := &mark{file: f, seq: seq}
	if err := m.set(last); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

func (m *mark) set(last uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	m.last = last
	b := append(make([]byte, 0, markBytes), "TWMK"...)
	b = binary.BigEndian.AppendUint64(b, m.seq)
	b = binary.BigEndian.AppendUint64(b, last)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
	// A handful of bytes into the page cache, under a lock that nothing else waits for.
	if _, err := m.file.WriteAt(b, int64(m.seq%2)*markStride); err != nil {
		return fmt.Errorf("write mark: %w", err)
	}
	return nil
}

func (m *mark) get() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (m *mark) close() error {
	return errors.Join(m.file.Sync(), m.file.Close())
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
