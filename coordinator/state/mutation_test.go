package state_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"tidewire/coordinator/state"
)

// A snapshot in which values were changed, behind a right checksum, is refused, or is one
// that commands do their work on, changed or not, and that comes back from a snapshot of
// its own.
func TestWhatIsNotRefusedWorks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	m, commands := sample(t)
	whole := encode(t, m)[17:]
	taken, applied := 0, 0
	for range 400 {
		b := mutated(r, whole)
		head := binary.BigEndian.AppendUint64([]byte("TWST\x03"), uint64(len(b)))
		m, err := state.Restore(append(append(head, with(3, b)[1:5]...), b...))
		if err != nil {
			continue
		}
		taken++
		for i, c := range commands {
			if r.IntN(3) == 0 {
				c = with(3, mutated(r, c[5:]))
			}
			if _, err := m.Apply(m.Index()+uint64(i)+1, c); err == nil {
				applied++
			}
		}
		now := encode(t, m)
		if back, err := state.Restore(now); err != nil || !bytes.Equal(encode(t, back), now) {
			t.Fatalf("the state does not come back: %v\n%s", err, now)
		}
	}
	t.Logf("%d snapshots were taken, and %d commands applied to them", taken, applied)
}

// mutated changes a few values of a JSON text.
func mutated(r *rand.Rand, text []byte) []byte {
	b := bytes.Clone(text)
	for range 1 + r.IntN(3) {
		i := r.IntN(len(b))
		digit := bytes.IndexAny(b[i:], "0123456789")
		colon := bytes.IndexByte(b[i:], ':')
		if digit < 0 || colon < 0 {
			continue
		}
		switch end := bytes.IndexAny(b[i+colon:], ",}"); r.IntN(4) {
		case 0: // another digit
			b[i+digit] = byte('0' + r.IntN(10))
		case 1: // another sign
			b = append(append(b[:i+digit:i+digit], '-'), b[i+digit:]...)
		case 2: // no value
			if end > 0 {
				b = append(append(b[:i+colon+1:i+colon+1], "null"...), b[i+colon+end:]...)
			}
		default: // a member less
			comma := bytes.IndexByte(b[i:], ',')
			if comma < 0 {
				continue
			}
			if next := bytes.IndexByte(b[i+comma+1:], ','); next >= 0 {
				b = append(b[:i+comma:i+comma], b[i+comma+1+next:]...)
			}
		}
	}
	return b
}
