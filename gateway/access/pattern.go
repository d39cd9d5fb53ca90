package access

import (
	"fmt"
	"strings"

	"tidewire/internal/ident"
)

// Bounds of the patterns of one token.
const (
	maxPatterns     = 256 // of one right
	maxPatternBytes = 512
)

// subject stands in a pattern for the token's subject.
const subject = "{sub}"

// pattern is the literal parts between the stars of a pattern: one part is a
// name, "" and "" are what a lone star matches.
type pattern []string

// compile reads a pattern. The subject comes in as plain text, so that one with
// a star in it opens nothing; without a subject, a pattern that wants one
// matches nothing (nil).
func compile(text, sub string) (pattern, error) {
	if text == "" || len(text) > maxPatternBytes {
		return nil, fmt.Errorf("takes patterns of 1 to %d bytes", maxPatternBytes)
	}
	parts := strings.Split(text, "*")
	for i, part := range parts {
		rest := strings.ReplaceAll(part, subject, "")
		if strings.ContainsAny(rest, "{}") {
			return nil, fmt.Errorf("%q has a placeholder that is not %s", clip(text), subject)
		}
		if rest == part {
			continue
		}
		if sub == "" {
			return nil, nil
		}
		parts[i] = strings.ReplaceAll(part, subject, sub)
	}
	return parts, nil
}

// match reports whether a topic's name fits. A star stands for any run of
// characters, an empty one and dots included.
func (p pattern) match(name string) bool {
	if len(p) == 0 {
		return false
	}
	name, ok := strings.CutPrefix(name, p[0])
	if !ok || len(p) == 1 {
		return ok && name == ""
	}
	last := p[len(p)-1]
	for _, part := range p[1 : len(p)-1] {
		// The first place is as good as any: what follows has the most room then.
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, last)
}

func clip(s string) string {
	if len(s) > ident.MaxNameBytes {
		return strings.ToValidUTF8(s[:ident.MaxNameBytes], "") + "…"
	}
	return s
}
