package main

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestNothingVisibleSteersATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "in")
		out := visible(in)
		if !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool {
			return (unicode.IsControl(r) && r != '\t') || unicode.Is(unicode.Bidi_Control, r)
		}) {
			t.Fatalf("%q shows as %q", in, out)
		}
	})
	for in, want := range map[string]string{"plain ü\t": "plain ü\t", "\x1b[31m": `\u001b[31m`, "a\nb": `a\nb`, "\xff": `\xff`, "\u202eabc": `\u202eabc`, "\ufffd": "\ufffd"} {
		if got := visible(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
