package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the module path of this repository.
const Module = "tidewire"

// File is one parsed Go file.
type File struct {
	Path      string // from the module's root, with slashes
	Dir       string // its package's folder; "." at the root
	Test      bool
	Generated bool
	Lines     int
	Syntax    *ast.File
	Imports   map[string]string // name in this file to import path
}

// Tree is the source of a module.
type Tree struct {
	Fset  *token.FileSet
	Files []*File
}

// Load parses every Go file under fsys, but for folders that are modules of
// their own, hidden, or hold test data.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && skipDir(fsys, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		return t.add(fsys, name)
	})
	return t, err
}

func skipDir(fsys fs.FS, dir string) bool {
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "vendor" {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

func (t *Tree) add(fsys fs.FS, name string) error {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.Fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	f := &File{
		Path:      name,
		Dir:       path.Dir(name),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     bytes.Count(source, []byte("\n")),
		Syntax:    syntax,
		Imports:   map[string]string{},
	}
	for _, spec := range syntax.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.Imports[importName(spec, target)] = target
	}
	t.Files = append(t.Files, f)
	return nil
}

// importName is the name an import goes by in its file. Without types it is
// the last part of the path, less a version.
func importName(spec *ast.ImportSpec, target string) string {
	if spec.Name != nil {
		if spec.Name.Name == "_" || spec.Name.Name == "." {
			return spec.Name.Name + target
		}
		return spec.Name.Name
	}
	base := path.Base(target)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(target))
	}
	return base
}

// packages groups the files by folder, in order.
func (t *Tree) packages() [][]*File {
	byDir := map[string][]*File{}
	for _, f := range t.Files {
		byDir[f.Dir] = append(byDir[f.Dir], f)
	}
	dirs := make([]string, 0, len(byDir))
	for dir := range byDir {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	all := make([][]*File, len(dirs))
	for i, dir := range dirs {
		all[i] = byDir[dir]
	}
	return all
}

// at says where a node stands.
func (t *Tree) at(n ast.Node) string {
	p := t.Fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// under reports whether dir is one of the roots or inside one.
func under(dir string, roots ...string) bool {
	for _, r := range roots {
		if dir == r || strings.HasPrefix(dir, r+"/") {
			return true
		}
	}
	return false
}

// local is the folder of an import of this module.
func local(target string) (dir string, ok bool) {
	if target == Module {
		return ".", true
	}
	return strings.CutPrefix(target, Module+"/")
}

// standard reports whether an import path is of the standard library.
func standard(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	_, ours := local(target)
	return !ours && !strings.Contains(first, ".")
}

// call finds a call of a function of an imported package: its import path and name.
func (f *File) call(n ast.Node) (target, name string, ok bool) {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return "", "", false
	}
	return f.selector(c.Fun)
}

// selector resolves pkg.Name.
func (f *File) selector(e ast.Expr) (target, name string, ok bool) {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	target, ok = f.Imports[x.Name]
	return target, s.Sel.Name, ok
}
