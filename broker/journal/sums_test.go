package journal

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/record"
)

func TestSumsOfPartsAreTheChecksums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		data := make([]byte, rapid.IntRange(0, 5*sumsEvery).Draw(t, "bytes"))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		s := sums{data: data}
		for range 20 {
			to := r.Int64N(int64(len(data)) + 1)
			from := r.Int64N(to + 1)
			sum := r.Uint32()
			if got, want := s.more(sum, from, to), record.ChecksumMore(sum, data[from:to]); got != want {
				t.Fatalf("[%d,%d) of %d bytes: %x, want %x", from, to, len(data), got, want)
			}
		}
	})
}

// likeFrames fills bytes with heads of frames that are as long as they can be.
func likeFrames(data []byte) {
	for off := 0; off+frameHead+entryHead <= len(data); off += frameHead + entryHead {
		le := binary.LittleEndian
		le.PutUint32(data[off:], uint32(len(data)-off))
		le.PutUint32(data[off+4:], 12345)
		le.PutUint64(data[off+8:], 2)
		le.PutUint64(data[off+16:], 1)
		le.PutUint32(data[off+24:], 2)
		data[off+frameHead] = 2
	}
}

// Whatever lies in a file, and whoever made it, the start looks through it in a
// time that its size bounds, and finds the frame behind it.
func TestBytesThatLookLikeFramesAreLookedThroughQuickly(t *testing.T) {
	data := make([]byte, 16<<20)
	likeFrames(data)
	good := seal1(3, salt{7})
	at := int64(len(data) - len(good) - 1)
	copy(data[at:], good)
	began := time.Now()
	frames, _ := findFrames(data, salt{7})
	if len(frames) != 1 || frames[0].offset != at || frames[0].seq != 3 {
		t.Fatalf("%v", frames)
	}
	if took := time.Since(began); took > time.Minute { // 400,000 times 8 MiB would take many
		t.Errorf("it took %s", took)
	}
}

// seal1 makes a frame of one entry.
func seal1(seq uint64, s salt) []byte {
	b := appendEntry(make([]byte, frameHead), 2, []byte("payload"))
	seal(b, s, seq, 1, 1)
	return b
}

func BenchmarkFindFramesInWhatLooksLikeThem(b *testing.B) {
	data := make([]byte, 32<<20)
	likeFrames(data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		findFrames(data, salt{})
	}
}
