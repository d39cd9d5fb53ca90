package access

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/fault"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, sub string
		yes, no      []string
	}{
		{"orders", "", []string{"orders"}, []string{"order", "orders2", "Orders", ""}},
		{"*", "", []string{"a", "a.b", "_alerts"}, nil},
		{"orders.*", "", []string{"orders.eu", "orders.eu.1", "orders."}, []string{"orders", "orderszeu", "x.orders.eu"}},
		{"*.eu", "", []string{"orders.eu", ".eu"}, []string{"eu", "orders.eu.1"}},
		{"a*b*c", "", []string{"abc", "axbxc", "abcbc"}, []string{"ab", "ac", "acb", "abcd"}},
		{"a*a", "", []string{"aa", "aba"}, []string{"a"}},
		{"user.{sub}", "ann", []string{"user.ann"}, []string{"user.bob", "user.{sub}", "user."}},
		{"{sub}.{sub}*", "a", []string{"a.a", "a.ab"}, []string{"a.b"}},
		{"user.{sub}.*", "*", []string{"user.*.x"}, []string{"user.ann.x"}}, // a star in a name opens nothing
		{"user.{sub}", "", nil, []string{"user.", "user.{sub}"}},
		{"*{sub}*", "", nil, []string{"a", ""}},
	} {
		p, err := compile(c.pattern, c.sub)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, name := range c.yes {
			if !p.match(name) {
				t.Errorf("%q with subject %q does not match %q", c.pattern, c.sub, name)
			}
		}
		for _, name := range c.no {
			if p.match(name) {
				t.Errorf("%q with subject %q matches %q", c.pattern, c.sub, name)
			}
		}
	}
	for _, bad := range []string{"", "{user}", "a}", "{sub", strings.Repeat("a", maxPatternBytes+1)} {
		if _, err := compile(bad, "x"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Patterns match as the regular expression that says the same.
func TestPatternsEqualTheirTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(a|b|\.|\*|\{sub\}){1,8}`).Draw(t, "pattern")
		sub := rapid.StringMatching(`[ab*.]{0,3}`).Draw(t, "sub")
		name := rapid.StringMatching(`[ab*.]{0,10}`).Draw(t, "name")
		p, err := compile(text, sub)
		if err != nil {
			t.Fatal(err)
		}
		twin := strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, `.*`)
		twin = `^` + strings.ReplaceAll(twin, `\{sub\}`, regexp.QuoteMeta(sub)) + `$`
		want := regexp.MustCompile(twin).MatchString(name) && !(sub == "" && strings.Contains(text, subject))
		if got := p.match(name); got != want {
			t.Fatalf("%q with subject %q on %q: %v", text, sub, name, got)
		}
	})
}

func TestDecisions(t *testing.T) {
	grant := func(claim string) *Grant {
		r, err := parseRights([]byte(claim), "ann")
		if err != nil {
			t.Fatal(err)
		}
		return &Grant{Principal: "ann", rights: r}
	}
	type row struct {
		name      string
		g         *Grant
		publish   bool // topic t
		subscribe bool
		knows     bool
		admin     bool
	}
	for _, c := range []row{
		{"everyone", Everyone(), true, true, true, true},
		{"nobody", nil, false, false, false, false},
		{"no rights", grant(`{}`), false, false, false, false},
		{"publish", grant(`{"publish":["t"]}`), true, false, true, false},
		{"subscribe", grant(`{"subscribe":["*"]}`), false, true, true, false},
		{"request", grant(`{"request":["t"]}`), false, false, true, false},
		{"other topics", grant(`{"publish":["u"],"subscribe":["u.*"],"group":["t2"]}`), false, false, false, false},
		{"admin", grant(`{"admin":true}`), true, true, true, true},
		{"no admin", grant(`{"admin":false,"publish":["*"]}`), true, false, true, false},
	} {
		got := row{c.name, c.g, c.g.May(Publish, "t") == nil, c.g.May(Subscribe, "t") == nil, c.g.Knows("t") == nil, c.g.Admin() == nil}
		if got != c {
			t.Errorf("%s: %+v, want %+v", c.name, got, c)
		}
		if c.g.Sees("t") != c.knows {
			t.Errorf("%s: sees %v", c.name, !c.knows)
		}
	}
	err := grant(`{}`).May(Subscribe, "t")
	if f := fault.As(err); f.Kind != fault.Forbidden || f.Fields["right"] != "subscribe" || f.Fields["topic"] != "t" || !strings.Contains(f.Detail(), `"subscribe"`) {
		t.Errorf("%+v", f)
	}
	if err := (*Grant)(nil).Admin(); ReasonOf(err) != NoToken {
		t.Errorf("%v", err)
	}
}
