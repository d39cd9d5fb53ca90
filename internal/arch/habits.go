package arch

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

func habits() []Rule {
	production := func(f *File) bool { return !f.Test }
	return []Rule{
		{
			"no-bare-go",
			"Whoever starts a goroutine waits for it: errgroup or sync.WaitGroup.Go say who does, a bare go statement does not.",
			func(t *Tree) []Finding {
				return t.inspect(production, func(_ *File, n ast.Node) string {
					if _, ok := n.(*ast.GoStmt); ok {
						return "a bare go statement"
					}
					return ""
				})
			},
		},
		{
			"no-init",
			"Importing a package must do nothing: what runs, runs because somebody called it. Generated code is as its generator wants it.",
			func(t *Tree) []Finding {
				return t.inspect(func(f *File) bool { return !f.Test && !f.Generated }, func(_ *File, n ast.Node) string {
					if d, ok := n.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
						return "an init function"
					}
					return ""
				})
			},
		},
		{
			"no-package-state",
			"Two clusters live in one test process, so nothing that changes may hang on a package.",
			packageState,
		},
		{
			"no-global-registry",
			"Metrics, handlers and loggers are passed in, for the same reason.",
			func(t *Tree) []Finding {
				return t.inspect(production, func(f *File, n ast.Node) string {
					s, ok := n.(*ast.SelectorExpr)
					if !ok {
						return ""
					}
					target, name, ok := f.selector(s)
					if !ok {
						return ""
					}
					switch {
					case target == "github.com/prometheus/client_golang/prometheus/promauto" && name != "With",
						target == "github.com/prometheus/client_golang/prometheus" && slices.Contains([]string{"DefaultRegisterer", "DefaultGatherer", "MustRegister", "Register", "Unregister"}, name),
						target == "net/http" && slices.Contains([]string{"Handle", "HandleFunc", "DefaultServeMux", "DefaultClient", "Get", "Post", "Head", "PostForm"}, name),
						target == "log/slog" && slices.Contains([]string{"SetDefault", "Default", "Debug", "Info", "Warn", "Error", "Log"}, name),
						target == "log" && name != "Logger" && name != "New",
						target == "flag":
						return "uses the process-wide " + path.Base(target) + "." + name
					}
					return ""
				})
			},
		},
		{
			"environment-in-one-place",
			"A setting that is read where it is used can be neither listed nor overruled.",
			func(t *Tree) []Finding {
				return t.inspect(func(f *File) bool {
					return !f.Test && !under(f.Dir, "internal/boot", "internal/run", "cmd", "e2e", "internal/testkit")
				}, func(f *File, n ast.Node) string {
					target, name, ok := f.call(n)
					if ok && target == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, name) {
						return "reads the environment"
					}
					return ""
				})
			},
		},
		{
			"file-seam",
			"Every file of a log goes through the seam where tests make disks fail; a direct call would be a disk that never does.",
			func(t *Tree) []Finding {
				return t.inspect(func(f *File) bool { return !f.Test && under(f.Dir, "broker") }, func(f *File, n ast.Node) string {
					target, name, ok := f.call(n)
					if ok && target == "os" && slices.Contains([]string{"Create", "CreateTemp", "Open", "OpenFile", "OpenRoot", "Remove", "RemoveAll", "Rename", "Mkdir", "MkdirAll", "ReadFile", "WriteFile", "ReadDir", "Stat", "Lstat", "Truncate", "Link", "Symlink"}, name) {
						return "goes around internal/vfs by os." + name
					}
					return ""
				})
			},
		},
		{
			"package-names",
			"A package is a noun one can say in one breath; these names attract whatever has no home.",
			func(t *Tree) []Finding {
				var all []Finding
				for _, files := range t.packages() {
					if base := path.Base(files[0].Dir); slices.Contains([]string{"util", "utils", "common", "types", "helpers", "helper", "manager", "misc", "lib", "base", "shared"}, base) {
						all = append(all, found(files[0].Dir, "a package named %s", base))
					}
				}
				return all
			},
		},
		{
			"package-comments",
			"A package says what it promises and what it does not, before its first line of code.",
			func(t *Tree) []Finding {
				var all []Finding
				for _, files := range t.packages() {
					code, documented := false, false
					for _, f := range files {
						code = code || !f.Test
						documented = documented || f.Syntax.Doc.Text() != ""
					}
					if code && !documented {
						all = append(all, found(files[0].Dir, "no package comment"))
					}
				}
				return all
			},
		},
		{
			"no-loose-ends",
			"A remark that something is unfinished is read by nobody; an issue is.",
			func(t *Tree) []Finding {
				var all []Finding
				for _, f := range t.Files {
					for _, group := range f.Syntax.Comments {
						for _, c := range group.List {
							for _, mark := range []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"} {
								if strings.Contains(c.Text, mark) {
									all = append(all, found(t.at(c), "a comment says %s", mark))
								}
							}
						}
					}
				}
				return all
			},
		},
	}
}
