package journal

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// slowCandidate is nextCandidate without its short cut through zeros.
func slowCandidate(data []byte, off int64) int64 {
	le := binary.LittleEndian
	for ; off+frameHead <= int64(len(data)); off++ {
		n := le.Uint32(data[off:])
		if n >= frameHead && int64(n) <= int64(len(data))-off && le.Uint32(data[off+28:]) == 0 && le.Uint64(data[off+16:]) <= le.Uint64(data[off+8:]) {
			break
		}
	}
	return off
}

func TestTheShortCutThroughZerosMissesNoFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := make([]byte, rapid.IntRange(0, 300).Draw(t, "bytes"))
		for range rapid.IntRange(0, 6).Draw(t, "words") {
			if len(data) > 4 {
				at := rapid.IntRange(0, len(data)-4).Draw(t, "at")
				binary.LittleEndian.PutUint32(data[at:], rapid.SampledFrom([]uint32{1, 32, 40, 256, 1 << 16}).Draw(t, "word"))
			}
		}
		for off := int64(0); off+frameHead <= int64(len(data)); {
			got, want := nextCandidate(data, off), slowCandidate(data, off)
			if got != want && min(got, want)+frameHead <= int64(len(data)) { // past that there is no room for one
				t.Fatalf("from %d: %d, want %d", off, got, want)
			}
			off = want + 1
		}
	})
}

func BenchmarkFindFramesInZeros(b *testing.B) {
	data := make([]byte, 32<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		findFrames(data, salt{})
	}
}
