package frame_test

import (
	"bytes"
	"testing"

	"tidewire/internal/bench/frame"
)

// unmasked turns a client's frame into the server's frame of the same payload.
func unmasked(t *testing.T, b []byte) []byte {
	t.Helper()
	head := 2
	switch b[1] & 0x7F {
	case 126:
		head = 4
	case 127:
		head = 10
	}
	key := b[head : head+4]
	out := append([]byte{}, b[:head]...)
	out[1] &= 0x7F
	for i, c := range b[head+4:] {
		out = append(out, c^key[i&3])
	}
	return out
}

func TestAFrameComesBackAsItWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65_535, 65_536, 200_000} {
		payload := bytes.Repeat([]byte("tide"), n/4+1)[:n]
		b := unmasked(t, frame.Append(nil, frame.Text, payload, [4]byte{1, 2, 3, 4}))
		for _, cut := range []int{0, 1, 2, 3, 9, len(b) - 1} {
			if _, whole, err := frame.Parse(b[:min(cut, len(b)-1)]); whole || err != nil {
				t.Fatalf("%d bytes of a frame of %d: whole %v, %v", cut, n, whole, err)
			}
		}
		f, whole, err := frame.Parse(append(b, 0x81))
		if err != nil || !whole || f.Op != frame.Text || f.Size != len(b) || !bytes.Equal(f.Payload, payload) {
			t.Errorf("a frame of %d bytes: whole %v, op %d, size %d, %v", n, whole, f.Op, f.Size, err)
		}
	}
}

func TestWhatNoServerSendsIsRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"a fragment":    {0x01, 0x00},
		"an extension":  {0xC1, 0x00},
		"a mask":        {0x81, 0x80, 1, 2, 3, 4},
		"endless bytes": {0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0},
	} {
		if _, _, err := frame.Parse(b); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestCloseCodes(t *testing.T) {
	if c := frame.CloseCode([]byte{0x0F, 0xA1, 'x'}); c != 4001 {
		t.Errorf("got %d, want 4001", c)
	}
	if c := frame.CloseCode(nil); c != 1005 {
		t.Errorf("got %d, want 1005", c)
	}
}
