package arch

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tidewire/internal/boot"
	"tidewire/internal/fault"
)

func TestDocumentsNameWhatExists(t *testing.T) {
	fsys := os.DirFS("../..")
	docs, err := documents(fsys)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := fs.ReadFile(fsys, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	tests := map[string]bool{}
	for _, f := range house(t).Files {
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.Test {
				tests[fn.Name.Name] = true
			}
		}
	}
	named := 0
	for name, text := range docs {
		for _, p := range append(namedPaths(text), links(name, text)...) {
			named++
			if _, err := fs.Stat(fsys, p); err != nil {
				t.Errorf("%s names %s, which does not exist", name, p)
			}
		}
		for _, fn := range namedTests(text) {
			named++
			if !tests[fn] {
				t.Errorf("%s names the test %s, which does not exist", name, fn)
			}
		}
		for _, target := range makeTargets(text) {
			named++
			if !targets[target] {
				t.Errorf("%s names make %s, which the Makefile does not have", name, target)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names found in %d documents", named, len(docs))
	}
}

// Every code a client can meet is in the normative table, with its status.
func TestTheProtocolListsEveryCode(t *testing.T) {
	text := read(t, "../../docs/protocol.md")
	for _, k := range fault.Kinds() {
		if row := fmt.Sprintf("| %d | `%s` |", k.Status(), k.Code()); !strings.Contains(text, row) {
			t.Errorf("docs/protocol.md has no row %q", row)
		}
	}
}

// Every member that the OpenAPI file describes is named in the normative text.
func TestTheProtocolNamesEveryMember(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(read(t, "../../gateway/httpapi/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	text, named := read(t, "../../docs/protocol.md"), 0
	for schema, s := range doc.Components.Schemas {
		for name := range s.Properties {
			if named++; !strings.Contains(text, `"`+name+`"`) && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/protocol.md does not name %s of %s", name, schema)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d members found", named)
	}
}

// Every setting is in the operator's table, with its default.
func TestTheOperationsPageListsEverySetting(t *testing.T) {
	text := read(t, "../../docs/operations.md")
	for _, s := range boot.Settings() {
		row := fmt.Sprintf("| `%s` |", s.Name)
		if s.Default != "" {
			row += fmt.Sprintf(" `%s` |", s.Default)
		}
		if !strings.Contains(text, row) {
			t.Errorf("docs/operations.md has no row that begins %q", row)
		}
	}
}

// The file of settings that the operator's page shows is one that a node takes.
func TestTheOperationsPageShowsAGoodFile(t *testing.T) {
	_, block, ok := strings.Cut(read(t, "../../docs/operations.md"), "```yaml\n")
	text, _, ended := strings.Cut(block, "```")
	if !ok || !ended {
		t.Fatal("docs/operations.md shows no YAML file")
	}
	path := filepath.Join(t.TempDir(), "tidewire.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := boot.Load(boot.Source{Environ: []string{"TIDEWIRE_CONFIG=" + path}, Hostname: "box"})
	if err != nil || len(c.AllowedOrigins) != 2 || c.MaxConnections == 0 {
		t.Errorf("%v, %+v", err, c)
	}
}

// A metric that an operator is told of is declared somewhere.
func TestTheOperationsPageNamesRealMetrics(t *testing.T) {
	declared := map[string]bool{}
	for _, f := range house(t).Files {
		for n := range ast.Preorder(f.Syntax) {
			if s, ok := n.(*ast.BasicLit); ok && !f.Test {
				declared[strings.Trim(s.Value, `"`)] = true
			}
		}
	}
	named := metric.FindAllStringSubmatch(read(t, "../../docs/operations.md"), -1)
	for _, m := range named {
		if !declared[m[1]] {
			t.Errorf("docs/operations.md names the metric %s, which nothing declares", m[1])
		}
	}
	if len(named) < 5 {
		t.Errorf("only %d metrics found", len(named))
	}
}

// The lists of packages in the documents are those of the tree: all rooms, all
// leaves, all that is pure.
func TestTheDocumentsListThePackages(t *testing.T) {
	_, rooms, ok := strings.Cut(read(t, "../../docs/architecture.md"), "\n## Rooms\n")
	if !ok {
		t.Fatal("docs/architecture.md has no section Rooms")
	}
	rooms, arrows, ok := strings.Cut(rooms, "\n## Arrows\n")
	if !ok {
		t.Fatal("docs/architecture.md has no section Arrows behind Rooms")
	}
	listed, pureRows := []string{}, []string{}
	for line := range strings.Lines(rooms) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
			listed = append(listed, m[1])
			if strings.HasPrefix(strings.TrimSpace(cells[2]), "pure:") {
				pureRows = append(pureRows, m[1])
			}
		}
	}
	packages, shell := []string{}, []string{}
	for _, p := range house(t).packages() {
		dir := p[0].Dir
		packages = append(packages, dir)
		if under(dir, "internal") && !slices.Contains(leaves, dir) && !under(dir, "internal/arch", "internal/testkit") {
			shell = append(shell, dir)
		}
	}
	same(t, "the rooms of docs/architecture.md", listed, packages)
	for _, dir := range pureRows {
		if !slices.Contains(pure, dir) {
			t.Errorf("docs/architecture.md calls %s pure, which no rule holds it to", dir)
		}
	}
	var lists [][]string
	for _, m := range regexp.MustCompile(`internal/\{[^}]*\}`).FindAllString(arrows, -1) {
		lists = append(lists, braces(strings.ReplaceAll(m, " ", "")))
	}
	if len(lists) != 2 {
		t.Fatalf("%d lists of internal packages under Arrows", len(lists))
	}
	same(t, "the shell of docs/architecture.md", lists[0], shell)
	same(t, "the leaves of docs/architecture.md", lists[1], leaves)

	for line := range strings.Lines(read(t, "../../docs/verification.md")) {
		if strings.HasPrefix(line, "1. **Pure packages**") {
			same(t, "the pure packages of docs/verification.md", namedPaths(line), pure)
		}
	}
}

// same holds a list of a document to what there is.
func same(t *testing.T, what string, listed, there []string) {
	t.Helper()
	for _, dir := range there {
		if !slices.Contains(listed, dir) {
			t.Errorf("%s lack %s", what, dir)
		}
	}
	for _, dir := range listed {
		if !slices.Contains(there, dir) {
			t.Errorf("%s have %s, which is none", what, dir)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNamesAreFoundInADocument(t *testing.T) {
	text := "The `broker/journal` and `internal/{ident,fault}`, `broker/...`, `web/`, not `broker`, `/topics/` or `a/b`.\n" +
		"See [the protocol](protocol.md#errors) and [elsewhere](https://example.com/x). `TestThis` and `Testing`; `make test`.\n" +
		"```\nmake run\n`gateway/none`\n```\n"
	for _, c := range []struct{ got, want []string }{
		{namedPaths(text), []string{"broker/journal", "internal/ident", "internal/fault", "web"}},
		{links("docs/a.md", text), []string{"docs/protocol.md"}},
		{namedTests(text), []string{"TestThis"}},
		{makeTargets(text), []string{"run", "test"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("found %q, want %q", c.got, c.want)
		}
	}
}
