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
			"A sleep on a real clock is either too short on a slow machine or too long on every other; in a synctest bubble it costs nothing and is exact. Real processes are paced by their test, and a benchmark measures the real clock.",
			sleeps,
		},
	}
}

// sleeps finds time.Sleep in tests outside a bubble. Inside is what stands in
// the arguments of synctest.Test or of a function of the package that calls it,
// and helpers in a file that uses bubbles.
func sleeps(t *Tree) []Finding {
	var all []Finding
	for _, files := range t.packages() {
		bubblers := bubblers(files)
		for _, f := range files {
			if f.Test && !under(f.Dir, "e2e") {
				all = append(all, t.sleepsIn(f, bubblers)...)
			}
		}
	}
	return all
}

func (t *Tree) sleepsIn(f *File, bubblers map[string]bool) []Finding {
	var all []Finding
	bubbles := f.importsPath("testing/synctest")
	for _, d := range f.Syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || (bubbles && !entry(fn.Name.Name)) || strings.HasPrefix(fn.Name.Name, "Benchmark") {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if f.bubble(n, bubblers) {
				return false
			}
			if target, name, ok := f.call(n); ok && target == "time" && name == "Sleep" {
				all = append(all, found(t.at(n), "sleeps on the real clock"))
			}
			return true
		})
	}
	return all
}

// bubblers are the functions of a package that run what they are given in a bubble.
func bubblers(files []*File) map[string]bool {
	names := map[string]bool{}
	for grown := true; grown; { // one may call another
		grown = false
		for _, f := range files {
			for _, d := range f.Syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || names[fn.Name.Name] || entry(fn.Name.Name) {
					continue
				}
				for n := range ast.Preorder(fn) {
					if f.bubble(n, names) {
						names[fn.Name.Name], grown = true, true
						break
					}
				}
			}
		}
	}
	return names
}

// bubble reports whether a node is a call that runs its arguments in a bubble.
func (f *File) bubble(n ast.Node, bubblers map[string]bool) bool {
	if target, name, ok := f.call(n); ok {
		return target == "testing/synctest" && name == "Test"
	}
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		return bubblers[fun.Name]
	case *ast.SelectorExpr:
		return bubblers[fun.Sel.Name]
	}
	return false
}

func (f *File) importsPath(target string) bool {
	for _, path := range f.Imports {
		if path == target {
			return true
		}
	}
	return false
}

// entry reports whether go test calls the function.
func entry(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}
