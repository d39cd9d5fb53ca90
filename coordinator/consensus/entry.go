package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// errNotFound is what raft expects of a key that was never set: it compares the text.
var errNotFound = errors.New("not found")

// sealVersion is the format of what sealed puts into an entry's extensions.
const sealVersion = 1

// sealed is the entry with a checksum in its extensions, over all that raft
// acts on: it covers raft's own entries too, which carry none of ours.
func sealed(l *raft.Log) *raft.Log {
	c := *l
	c.Extensions = binary.BigEndian.AppendUint32([]byte{sealVersion}, entrySum(l))
	return &c
}

// checkSeal says whether an entry is what was stored at that index.
func checkSeal(index uint64, l *raft.Log) error {
	switch {
	case l.Index != index:
		return fmt.Errorf("entry %d calls itself %d", index, l.Index)
	case len(l.Extensions) != 5:
		return fmt.Errorf("entry %d has no checksum", index)
	case l.Extensions[0] != sealVersion:
		return fmt.Errorf("entry %d has format %d, this version of tidewire knows %d", index, l.Extensions[0], sealVersion)
	case binary.BigEndian.Uint32(l.Extensions[1:]) != entrySum(l):
		return fmt.Errorf("the checksum of entry %d is wrong: its bytes have changed", index)
	}
	return nil
}

func entrySum(l *raft.Log) uint32 {
	b := binary.BigEndian.AppendUint64([]byte{sealVersion, byte(l.Type)}, l.Index)
	b = binary.BigEndian.AppendUint64(b, l.Term)
	table := castagnoli()
	return crc32.Update(crc32.Checksum(b, table), table, l.Data)
}

// sealValue puts a checksum behind a value of the stable store, over its key too.
func sealValue(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(append([]byte(nil), value...), valueSum(key, value))
}

func unsealValue(key, stored []byte) ([]byte, error) {
	n := len(stored) - crc32.Size
	if n < 0 || binary.BigEndian.Uint32(stored[n:]) != valueSum(key, stored[:n]) {
		return nil, fmt.Errorf("the checksum of %q is wrong: its bytes have changed", key)
	}
	return stored[:n], nil
}

func valueSum(key, value []byte) uint32 {
	table := castagnoli()
	return crc32.Update(crc32.Update(crc32.Checksum([]byte{byte(len(key))}, table), table, key), table, value)
}
