// Package scenario plays text files of what happens against a pure machine, and holds
// the machine to what the file says that it answers.
package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rewrite says that expectations are to be written anew into testdata, in place of being
// held to. Read the diff.
func Rewrite() bool { return os.Getenv("TEST_TIDEWIRE_REWRITE") != "" }

// Player does what the words of a line say, on one machine, and says what came of it.
type Player func(words []string) string

// Run plays testdata/*.txt, each file on a machine of its own: a block of lines, a line
// of dashes, what the machine said, an empty line. Comments begin with #.
func Run(t *testing.T, begin func(t *testing.T) Player) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(begin(t), string(b))
			if Rewrite() {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if line, want, have, differ := difference(string(b), got); differ {
				t.Fatalf("%s:%d: want %q, got %q", f, line, want, have)
			}
		})
	}
}

func play(do Player, text string) string {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		in, _, _ := strings.Cut(block, "\n----")
		out.WriteString(in + "\n----\n")
		for line := range strings.Lines(in) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				out.WriteString(do(strings.Fields(line)))
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// difference finds the first line in which texts differ.
func difference(want, have string) (line int, wants, has string, differ bool) {
	w, h := strings.Split(want, "\n"), strings.Split(have, "\n")
	for i := range max(len(w), len(h)) {
		a, b := at(w, i), at(h, i)
		if a != b || i >= len(w) || i >= len(h) {
			return i + 1, a, b, true
		}
	}
	return 0, "", "", false
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
