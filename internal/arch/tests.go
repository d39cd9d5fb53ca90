package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// skipReasons are all that a test may be skipped for; one of them stands in
// the message, so that whoever reads the output knows what was not tested.
var skipReasons = []string{"shared/data", "root", "chromium"}

func testHabits() []Rule {
	return []Rule{
		{
			"no-skips",
			"A skipped test looks like a passed one. Only what a machine may truly lack excuses it, and is said.",
			func(t *Tree) []Finding {
				return t.inspect(func(f *File) bool { return true }, func(f *File, n ast.Node) string {
					c, ok := n.(*ast.CallExpr)
					if !ok {
						return ""
					}
					s, ok := c.Fun.(*ast.SelectorExpr)
					if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) {
						return ""
					}
					if x, ok := s.X.(*ast.Ident); !ok || !slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) {
						return ""
					}
					for _, arg := range c.Args {
						if text, ok := arg.(*ast.BasicLit); ok && slices.ContainsFunc(skipReasons, func(r string) bool { return strings.Contains(text.Value, r) }) {
							return ""
						}
					}
					return "skips without one of the reasons: " + strings.Join(skipReasons, ", ")
				})
			},
		},
		{
			"no-sleep",
			"A sleep on a real clock is either too short on a slow machine or too long on every other; in a synctest bubble it costs nothing and is exact. Real processes are paced by their test.",
			sleeps,
		},
	}
}

// sleeps finds time.Sleep in tests outside a bubble. Inside is what stands in
// the arguments of synctest.Test, and helpers in a file that uses bubbles.
func sleeps(t *Tree) []Finding {
	var all []Finding
	for _, f := range t.Files {
		if !f.Test || under(f.Dir, "e2e") {
			continue
		}
		bubbles := slices.Contains(mapValues(f.Imports), "testing/synctest")
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || (bubbles && !entry(fn.Name.Name)) {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				target, name, ok := f.call(n)
				if ok && target == "testing/synctest" && name == "Test" {
					return false
				}
				if ok && target == "time" && name == "Sleep" {
					all = append(all, found(t.at(n), "sleeps on the real clock"))
				}
				return true
			})
		}
	}
	return all
}

// entry reports whether go test calls the function.
func entry(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}

func mapValues(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
