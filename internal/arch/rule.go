package arch

import "fmt"

// Finding is one place that breaks a rule.
type Finding struct {
	Where string // path:line, or a path
	What  string
}

// Rule is one promise of the house.
type Rule struct {
	Name   string
	Reason string
	check  func(*Tree) []Finding
}

// Check gives the places that break the rule.
func (r Rule) Check(t *Tree) []Finding { return r.check(t) }

// Rules lists them all.
func Rules() []Rule {
	var all []Rule
	all = append(all, arrows()...)
	all = append(all, purity()...)
	all = append(all, habits()...)
	return append(all, testHabits()...)
}

func found(where, format string, args ...any) Finding {
	return Finding{where, fmt.Sprintf(format, args...)}
}
