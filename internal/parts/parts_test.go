package parts

import (
	"encoding/binary"
	"testing"
)

func TestPartsComeInOrderAndOnce(t *testing.T) {
	b := binary.AppendUvarint(nil, 300)
	b = binary.AppendVarint(b, -5)
	b = append(binary.AppendUvarint(b, 2), "hi"...)
	b = append(binary.AppendUvarint(b, 2), 1, 2, 3, 4, 9)
	r := Of(b)
	if r.Uvarint() != 300 || r.Varint() != -5 || string(r.Bytes()) != "hi" || r.Count(2) != 2 || string(r.Take(4)) != "\x01\x02\x03\x04" || r.Done() || r.Byte() != 9 || !r.Done() {
		t.Fatalf("%+v", r)
	}
}

func TestWhatIsMissingStaysMissing(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"take":    func(r *Reader) { r.Take(3) },
		"less":    func(r *Reader) { r.Take(-1) },
		"bytes":   func(r *Reader) { r.Bytes() },
		"count":   func(r *Reader) { r.Count(1) },
		"uvarint": func(r *Reader) { r.Take(1); r.Uvarint() },
		"varint":  func(r *Reader) { r.Take(1); r.Varint() },
	} {
		r := Of([]byte{200, 200})
		if read(&r); !r.Bad() || r.Done() || r.Byte() != 0 || r.Rest() != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b, plan []byte) {
		r := Of(b)
		for _, p := range plan {
			switch p % 6 {
			case 0:
				r.Byte()
			case 1:
				r.Uvarint()
			case 2:
				r.Varint()
			case 3:
				r.Bytes()
			case 4:
				r.Take(int(p) / 6)
			case 5:
				if n := r.Count(1 + int(p)/6); n > len(b) {
					t.Fatalf("%d things in %d bytes", n, len(b))
				}
			}
		}
		if r.Bad() && r.Done() {
			t.Fatal("bad and done")
		}
	})
}
