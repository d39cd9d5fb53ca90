package arch

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
)

// packageState finds package-level variables that change: those that some
// function of the package assigns to, and those whose type is made to change.
// Imports are not loaded, so what is decided is decided by the package's own
// text; a map that another package is handed and writes to goes unseen.
func packageState(t *Tree) []Finding {
	var all []Finding
	for _, files := range t.packages() {
		var code []*File
		for _, f := range files {
			if !f.Test && !f.Generated {
				code = append(code, f)
			}
		}
		all = append(all, t.changing(code)...)
	}
	return all
}

// stateful types are state wherever they stand. A sync.Pool is not in the
// list: what is in it can vanish at any time, so nobody can rely on it.
var stateful = map[string][]string{
	"sync":        {"Mutex", "RWMutex", "Once", "Map", "WaitGroup", "Cond"},
	"sync/atomic": {"Bool", "Int32", "Int64", "Uint32", "Uint64", "Pointer", "Value"},
}

func (t *Tree) changing(files []*File) []Finding {
	if len(files) == 0 {
		return nil
	}
	var all []Finding
	syntax := make([]*ast.File, len(files))
	for i, f := range files {
		syntax[i] = f.Syntax
		for _, d := range f.Syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if f.stateful(v.Type) {
					all = append(all, found(t.at(v), "package variable %s is made to change", v.Names[0].Name))
				}
				for _, value := range v.Values {
					if f.metric(value) {
						all = append(all, found(t.at(v), "package variable %s is a metric", v.Names[0].Name))
					}
				}
			}
		}
	}
	uses := t.resolve(files[0].Dir, syntax)
	for _, f := range files {
		for n := range ast.Preorder(f.Syntax) {
			for _, target := range assigned(n) {
				if v, ok := uses[root(target)].(*types.Var); ok && v.Parent() != nil && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
					all = append(all, found(t.at(n), "changes package variable %s", v.Name()))
				}
			}
		}
	}
	return all
}

// resolve maps identifiers to what they name in the package. Errors are of no
// interest: without its imports nothing type-checks, but names still resolve.
func (t *Tree) resolve(dir string, files []*ast.File) map[*ast.Ident]types.Object {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}, Importer: noImports{}}
	_, _ = config.Check(dir, t.Fset, files, info)
	return info.Uses
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not loaded") }

// assigned lists what a node writes to.
func assigned(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// root is the variable that a place to write to hangs on.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func (f *File) stateful(e ast.Expr) bool {
	if x, ok := e.(*ast.IndexExpr); ok {
		e = x.X // atomic.Pointer[T]
	}
	target, name, ok := f.selector(e)
	if !ok {
		return false
	}
	for _, s := range stateful[target] {
		if s == name {
			return true
		}
	}
	return false
}

func (f *File) metric(e ast.Expr) bool {
	target, name, ok := f.call(e)
	return ok && under(target, "github.com/prometheus/client_golang/prometheus") && len(name) > 3 && name[:3] == "New" && name != "NewDesc"
}
