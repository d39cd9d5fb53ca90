package plan_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the plan is, what figures mean and how pages are written hangs on nothing but
// values.
func TestThePurePackagesTouchNothing(t *testing.T) {
	forbidden := []string{"os", "net", "syscall", "runtime", "log", "math/rand", "context", "sync"}
	for _, name := range []string{"plan", "figures", "report", "brief"} {
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", name, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				target := strings.Trim(spec.Path.Value, `"`)
				root, _, _ := strings.Cut(target, "/")
				if slices.Contains(forbidden, target) || slices.Contains(forbidden, root) && root != "math" {
					t.Errorf("%s imports %s", path, target)
				}
			}
		}
	}
}
