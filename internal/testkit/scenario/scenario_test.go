package scenario

import (
	"strings"
	"testing"
)

func TestAScenarioIsPlayedLineByLine(t *testing.T) {
	var seen []string
	do := func(words []string) string {
		seen = append(seen, strings.Join(words, " "))
		return "did " + words[0] + "\n"
	}
	text := "# it begins\nadd  a b\ntake a\n----\nwhatever\n\nlook\n----\ndid look\n"
	want := "# it begins\nadd  a b\ntake a\n----\ndid add\ndid take\n\nlook\n----\ndid look\n"
	if got := play(do, text); got != want || strings.Join(seen, ";") != "add a b;take a;look" {
		t.Errorf("%q, after %q", got, seen)
	}
	if line, wants, has, differ := difference(text, want); !differ || line != 5 || wants != "whatever" || has != "did add" {
		t.Error(line, wants, has, differ)
	}
}

func TestTextsThatEndSoonerDiffer(t *testing.T) {
	if _, _, _, differ := difference("a\nb", "a\nb"); differ {
		t.Error("a text differs from itself")
	}
	for _, c := range [][2]string{{"a\nb", "a"}, {"a", "a\nb"}, {"a\n", "a"}} {
		if line, _, _, differ := difference(c[0], c[1]); !differ || line != 2 {
			t.Errorf("%q: line %d, %v", c, line, differ)
		}
	}
}
