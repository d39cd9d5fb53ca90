package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Publishing reads a frame once and copies nothing of it, whatever its size:
// all that is allocated is the topic's name.
func BenchmarkParseFrame(b *testing.B) {
	for _, c := range []struct{ name, value string }{
		{"plain 256", quoted(strings.Repeat("x", 256))},
		{"plain 1024", quoted(strings.Repeat("x", 1024))},
		{"plain 64k", quoted(strings.Repeat("x", 64<<10))},
		{"escapes 1024", quoted(strings.Repeat("line\n", 171))},
		{"cyrillic 1024", quoted(strings.Repeat("слово ", 94))},
		{"object 1024", `{"list":[` + strings.Repeat(`{"name":"a name","count":12345,"last":false},`, 22) + `null]}`},
	} {
		line := fmt.Appendf(nil, `{"op":"publish","id":1234567,"topic":"orders","key":"customer-17","value":%s}`, c.value)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := ParseFrame(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func quoted(s string) string { return string(AppendString(nil, s)) }

func TestParsingAFrameAllocatesNothingThatGrows(t *testing.T) {
	allocated := func(bytes int) float64 {
		line := fmt.Appendf(nil, `{"op":"publish","id":7,"topic":"orders","key":"k","value":%s}`, quoted(strings.Repeat("x", bytes)))
		return testing.AllocsPerRun(100, func() {
			if _, err := ParseFrame(line); err != nil {
				t.Fatal(err)
			}
		})
	}
	if small, large := allocated(10), allocated(100<<10); small > 1 || large > small {
		t.Fatalf("a frame with 10 bytes takes %v allocations, one with 100 KiB %v: one, for the topic's name, was enough", small, large)
	}
}

// plain looks at eight bytes at once: it must find what looking at each finds.
func TestPlainFindsEveryByteThatIsNot(t *testing.T) {
	for length := range 40 {
		for at := range length + 1 {
			for _, c := range []byte{0, 1, 0x1f, ' ', '!', '"', '#', '[', '\\', ']', 0x7e, 0x7f, 0x80, 0xa0, 0xa2, 0xdc, 0xff} {
				b := bytes.Repeat([]byte{'x'}, length)
				if at < length {
					b[at] = c
				}
				if at+1 < length {
					b[at+1] = '"' // what is behind it must not hide it
				}
				want := 0
				for want < length && b[want] >= ' ' && b[want] < utf8.RuneSelf && b[want] != '"' && b[want] != '\\' {
					want++
				}
				if got := plain(b, 0); got != want {
					t.Fatalf("%q: %d, and looking at each byte finds %d", b, got, want)
				}
			}
		}
	}
}

// Members beyond those an op takes are not kept, but all of them are read.
func TestManyMembersAreReadToTheLast(t *testing.T) {
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"x%d":%d,`, i, i)
	}
	f, err := ParseFrame([]byte(`{` + many.String() + `"op":"publish","id":7}`))
	if f.Op != "publish" || f.ID != 7 || err == nil || !strings.Contains(err.Error(), `"x0"`) {
		t.Fatal(f.Op, f.ID, err)
	}
	for op, known := range opFields {
		if len(known) >= enoughMembers {
			t.Errorf("%s takes %d members; with one more than that, at most %d are kept", op, len(known), enoughMembers)
		}
	}
	if f, err = ParseFrame([]byte(`{"op":"hello","id":1,"op":"auth","id":2}`)); f.Op != "auth" || f.ID != 2 || !strings.Contains(fmt.Sprint(err), `"op" comes twice`) {
		t.Fatal(f.Op, f.ID, err)
	}
	if _, err = ParseFrame([]byte(`{` + many.String() + `"op":"auth","id":7,}`)); err == nil || !strings.Contains(err.Error(), errJSON.Error()) {
		t.Fatal("what is no JSON comes before names that are not known:", err)
	}
	if !json.Valid([]byte(`{` + many.String() + `"op":"publish","id":7}`)) {
		t.Fatal("the lines of this test are to be JSON")
	}
}

// AppendTime writes what the standard library would.
func TestTimesAreWrittenAsTheStandardLibraryDoes(t *testing.T) {
	for _, ms := range []int64{0, 1, -1, 999, 1785110400123, 951782399999, 951782400000, 4102444800000, 253402300799999, 253402300800000, -62167219200000, -62167219200001, 1 << 53} {
		want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
		if got := string(AppendTime(nil, ms)); got != want {
			t.Errorf("%d is %s, not %s", ms, got, want)
		}
	}
}
