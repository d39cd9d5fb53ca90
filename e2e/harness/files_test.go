package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestACopyIsTheSameBytes(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	const piece = 256 << 10
	some := bytes.Repeat([]byte{1}, 10)
	for name, content := range map[string][]byte{
		"empty":              nil,
		"zeros":              make([]byte, 2*piece+5),
		"begins":             append(bytes.Clone(some), make([]byte, 3*piece)...),
		"ends":               append(make([]byte, 3*piece), some...),
		"ends with a piece":  append(make([]byte, piece-len(some)), some...),
		"over an edge":       append(append(make([]byte, piece-5), some...), make([]byte, piece)...),
		"shorter than piece": some,
	} {
		if err := os.WriteFile(filepath.Join(from, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	CopyDir(t, from, to)
	for name := range Sums(t, from) {
		base := filepath.Base(name)
		want, err := os.ReadFile(filepath.Join(from, base))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(to, base))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes became %d others (%v)", base, len(want), len(got), err)
		}
	}
}
