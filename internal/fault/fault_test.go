package fault

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestTheTableIsTotalAndItsCodesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		r := table[k]
		if r.code == "" || r.status < 400 || r.status > 599 || r.title == "" || r.advice == "" {
			t.Errorf("kind %d has an unfinished row %+v", k, r)
		}
		if seen[r.code] {
			t.Errorf("code %q stands twice", r.code)
		}
		seen[r.code] = true
		if back, ok := ByCode(r.code); !ok || back != k {
			t.Errorf("ByCode(%q) = %v, %v", r.code, back, ok)
		}
	}
	if Kind(255).Code() != "internal" {
		t.Error("an unknown kind is an internal error")
	}
}

func TestAsFindsTheFaultUnderWrapping(t *testing.T) {
	inner := New(DiskFull, "no room").With("free", 7)
	got := As(fmt.Errorf("append: %w", inner))
	if got.Kind != DiskFull || got.Fields["free"] != 7 || got.Detail() != "no room" {
		t.Fatalf("%+v", got)
	}
	if As(errors.New("plain")).Kind != Internal || As(nil) != nil {
		t.Fatal("an error nobody classified is internal, none is none")
	}
}

func TestNearest(t *testing.T) {
	known := []string{"topic", "partition", "key", "key_prefix"}
	for name, want := range map[string]string{"tpoic": "topic", "Topic": "topic", "keyprefix": "key_prefix", "xyzzy": "", "partitions": "partition"} {
		if got, ok := Nearest(name, known); ok != (want != "") || ok && got != want {
			t.Errorf("Nearest(%q) = %q, %v, want %q", name, got, ok, want)
		}
	}
	if got, ok := Nearest("x", nil); got != "" || ok {
		t.Error("there is none near where none is known")
	}
}

func TestDistanceIsAMetricOnSingleEdits(t *testing.T) {
	word := rapid.StringMatching(`[a-d_]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) {
			t.Fatalf("not symmetric: %q %q", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) || d < max(len(a)-len(b), len(b)-len(a)) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
		if i := rapid.IntRange(0, len(a)).Draw(t, "at"); distance(a, a[:i]+"x"+a[i:]) != 1 {
			t.Fatalf("an insertion into %q does not cost 1", a)
		}
	})
}
