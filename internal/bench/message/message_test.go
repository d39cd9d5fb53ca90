package message_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tidewire/internal/bench/message"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/wire"
)

func TestANumberSurvivesThePublishAndTheDelivery(t *testing.T) {
	for _, size := range []int{message.MinBytes, 64, 256, 1024, 70_000} {
		for _, number := range []int64{0, 42, 9_999_999_999_999_999} {
			key := [4]byte{0x1F, 0xA2, 0x00, 0x73}
			s := message.NewFrame(`{"op":"publish","topic":"t","key":"k`+message.Blank(3)+`","value":`+message.Value(size)+`}`, key)
			b := s.Append([]byte("before"), 7, number)
			if len(b) != len("before")+s.Len() {
				t.Fatalf("Append wrote %d bytes, Len says %d", len(b)-6, s.Len())
			}
			payload := unmask(b[6:], key)
			f, err := wire.ParseFrame(payload)
			if err != nil {
				t.Fatalf("size %d: %v: %s", size, err, payload)
			}
			rec := f.Publication.Record
			if string(rec.Key) != "k007" || len(rec.Value) != size || !json.Valid(rec.Value) {
				t.Fatalf("key %q, a value of %d bytes, want k007 and %d", rec.Key, len(rec.Value), size)
			}
			line := wire.AppendMessage(nil, "t", record.Header{Partition: ident.Partition{Index: 3}}, &record.Entry{Record: rec})
			if got, err := message.Number(line, size); err != nil || got != number {
				t.Errorf("size %d: number %d, want %d (%v)", size, got, number, err)
			}
		}
	}
}

func unmask(b []byte, key [4]byte) []byte {
	head := 6
	switch b[1] & 0x7F {
	case 126:
		head = 8
	case 127:
		head = 14
	}
	out := make([]byte, 0, len(b))
	for i, c := range b[head:] {
		out = append(out, c^key[i&3])
	}
	return out
}

func TestAForeignMessageIsNamed(t *testing.T) {
	for _, line := range []string{"", "}", `{"value":{"n":"00000000000000x1","x":""}}`, strings.Repeat("a", 300)} {
		if n, err := message.Number([]byte(line), message.MinBytes); err == nil {
			t.Errorf("%q has the number %d", line, n)
		}
	}
}

func TestATallyCountsWhatIsMissingAndWhatIsRepeated(t *testing.T) {
	// An own key each: subscriber 1 of 3 expects 1, 4, 7, …
	y := message.NewTally(1, 3)
	fresh := int64(0)
	for _, n := range []int64{1, 4, 4, 13, 10, 16} {
		fresh += y.Take(n)
	}
	if y.Lost != 2 || y.Duplicates != 2 || fresh != 6 || y.Next() != 19 {
		t.Errorf("lost %d, duplicates %d, fresh %d, next %d; want 2, 2, 6, 19", y.Lost, y.Duplicates, fresh, y.Next())
	}
}

func BenchmarkAppend(b *testing.B) {
	s := message.NewFrame(`{"op":"publish","id":1`+message.Blank(12)+`,"topic":"t","value":`+message.Value(1024)+`}`, [4]byte{1, 2, 3, 4})
	buf := make([]byte, 0, 2048)
	b.ReportAllocs()
	for i := range int64(b.N) {
		buf = s.Append(buf[:0], i, i)
	}
}
