package cursor

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func draw(t *rapid.T, places int) Cursor {
	c := Cursor{Generation: ident.Generation(rapid.Uint32().Draw(t, "generation")), Range: ident.FullRange}
	copy(c.Topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
	next := uint64(0)
	for range places {
		next += rapid.Uint64Range(1, 1<<20).Draw(t, "step")
		c.Places = append(c.Places, Place{ident.Index(next - 1), ident.Epoch(rapid.Uint32().Draw(t, "epoch")), ident.Offset(rapid.Int64Range(0, 1<<53).Draw(t, "offset"))})
	}
	return c
}

func TestACursorReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t, rapid.IntRange(1, 20).Draw(t, "places"))
		back, err := Parse(c.String())
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("%+v, %v, want %+v", back, err, c)
		}
		for _, p := range c.Places {
			if got, ok := back.Place(p.Partition); !ok || got != p {
				t.Fatalf("place %d is %+v", p.Partition, got)
			}
		}
	})
}

// 256 live partitions, each with a large offset, still fit a Last-Event-ID.
func TestTheLargestCursorFitsAHeader(t *testing.T) {
	c := Cursor{Generation: 1000, Range: ident.FullRange}
	for i := range cluster.MaxPartitions {
		c.Places = append(c.Places, Place{ident.Index(100_000 + i), 10_000, 1 << 41})
	}
	if n := len(c.String()); n > MaxBytes {
		t.Fatalf("%d characters", n)
	}
	if _, err := Parse(c.String()); err != nil {
		t.Fatal(err)
	}
}

func TestAChangedCharacterIsUnknown(t *testing.T) {
	s := []byte(Cursor{Topic: ident.TopicID{7}, Generation: 1, Range: ident.FullRange, Places: []Place{{0, 1, 5}, {3, 2, 9}}}.String())
	for i := range s {
		for _, c := range []byte("Aa0-_ .=") {
			if s[i] == c {
				continue
			}
			bad := append([]byte(nil), s...)
			bad[i] = c
			if _, err := Parse(string(bad)); err == nil {
				t.Fatalf("character %d as %q was taken", i, c)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Cursor{Generation: 1, Range: ident.FullRange, Places: []Place{{0, 1, 5}}}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(c.String()); err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q reads as %+v, which reads as %+v, %v", s, c, again, err)
		}
	})
}

func TestACursorIsWrittenWithoutAllocating(t *testing.T) {
	c := Cursor{Generation: 3, Range: ident.FullRange}
	for i := range 16 {
		c.Places = append(c.Places, Place{ident.Index(i), 7, ident.Offset(1_000_000 * i)})
	}
	b := append(make([]byte, 0, 1024), "before "...)
	if n := testing.AllocsPerRun(100, func() { b = c.AppendTo(b[:7]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if string(b) != "before "+c.String() {
		t.Errorf("%s, not %s", b, c)
	}
}
