package state_test

import (
	"bytes"
	"os"
	"testing"

	"tidewire/coordinator/state"
)

// The bytes of format 1 as they lie on disks. A change here means that a new
// version cannot read an old store: it needs a new format number beside the old one.
func TestFormatOneStaysReadable(t *testing.T) {
	m, commands := sample(t)
	all := append(commands, encode(t, m))
	got := bytes.Join(all, []byte("\n"))
	const path = "testdata/format1.golden"
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the format has changed:\n%s\n%s", want, got)
	}
	if _, err := state.Restore(all[len(all)-1]); err != nil {
		t.Fatal(err)
	}
}
