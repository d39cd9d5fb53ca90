package partition

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// MaxKeys bounds the Idempotency-Keys that one partition remembers.
const MaxKeys = 1 << 20

// digest stands for a principal and its Idempotency-Key.
type digest [16]byte

func digestOf(k *record.Idempotency) (d digest) {
	h := sha256.New()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(k.Principal)))
	h.Write(n[:])
	h.Write([]byte(k.Principal))
	h.Write([]byte(k.Key))
	copy(d[:], h.Sum(nil))
	return d
}

// keyed is a record that came with an Idempotency-Key.
type keyed struct {
	digest    digest
	content   [16]byte
	offset    ident.Offset
	timestamp int64 // ms since 1970
}

// keys remembers Idempotency-Keys for the topic's window.
type keys struct {
	byDigest map[digest]keyed
	order    []keyed // oldest first; an entry that was replaced since is skipped
	start    int     // of what is still held in order
}

func newKeys() keys { return keys{byDigest: map[digest]keyed{}} }

func (s *keys) add(k keyed) {
	s.byDigest[k.digest] = k
	s.order = append(s.order, k)
}

// expire forgets the keys older than the window.
func (s *keys) expire(now int64, window time.Duration) {
	for s.start < len(s.order) {
		k := s.order[s.start]
		if now-k.timestamp <= window.Milliseconds() {
			break
		}
		if held, ok := s.byDigest[k.digest]; ok && held.offset == k.offset {
			delete(s.byDigest, k.digest)
		}
		s.start++
	}
	if s.start > len(s.order)/2 && s.start > 64 {
		s.order = append([]keyed(nil), s.order[s.start:]...)
		s.start = 0
	} else if s.start == len(s.order) {
		s.order, s.start = s.order[:0], 0
	}
}
