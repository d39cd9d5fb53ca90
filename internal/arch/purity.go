package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// pure lists the packages that decide: values in, values out.
var pure = []string{
	"broker/lease",
	"broker/partition",
	"broker/replication",
	"cmd/tidewire/internal/capacity",
	"coordinator/assign",
	"coordinator/balance",
	"coordinator/layout",
	"coordinator/liveness",
	"coordinator/placement",
	"coordinator/session",
	"coordinator/state",
	"gateway/access",
	"gateway/alert",
	"gateway/cursor",
	"gateway/group",
	"gateway/topology",
	"internal/cluster",
	"internal/fault",
	"internal/ident",
	"internal/inbox",
	"internal/parts",
	"internal/record",
	"internal/wire",
}

// harmless packages below a forbidden one only parse and hold values.
var harmless = []string{"net/netip", "net/textproto", "net/url"}

// messages holds the values of requests and answers between the roles, in the files
// messageFiles, and beside them what carries them.
const messages = "internal/rpc"

var messageFiles = []string{messages + "/data.go", messages + "/group_data.go", messages + "/request_data.go"}

func purity() []Rule {
	return []Rule{
		{
			"pure-imports",
			"A package that decides is tested by text and simulation; a socket, a file or a log line would make its answer depend on the world.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					if f.Test || !slices.Contains(pure, f.Dir) {
						return ""
					}
					if dir, ours := local(target); ours && dir != messages && !slices.Contains(pure, dir) {
						return "a pure package rests on one that is not"
					}
					if slices.Contains(harmless, target) {
						return ""
					}
					if under(target, "net", "os", "log", "syscall", "crypto/rand", "runtime") {
						return "a pure package has no such thing"
					}
					return ""
				})
			},
		},
		{
			"pure-messages",
			"What the roles say to one another is plain values, which a pure package may take and give; how it is carried is none of its business.",
			pureMessages,
		},
		{
			"pure-time",
			"Time arrives as a value, or two replicas of a machine would disagree and no run could be repeated.",
			pureCalls("time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"),
		},
		{
			"pure-chance",
			"Chance arrives as a value for the same reason. A generator with a seed that was passed in is no chance.",
			func(t *Tree) []Finding {
				all := pureCallsBut("math/rand", "New", "NewSource", "NewZipf")(t)
				all = append(all, pureCallsBut("math/rand/v2", "New", "NewPCG", "NewChaCha8", "NewZipf")(t)...)
				return append(all, pureCalls("github.com/google/uuid", "New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7")(t)...)
			},
		},
	}
}

// pureMessages lets pure code use what messageFiles declare, and no more of that package.
func pureMessages(t *Tree) []Finding {
	values := map[string]bool{}
	for _, f := range t.Files {
		if !slices.Contains(messageFiles, f.Path) {
			continue
		}
		for n := range ast.Preorder(f.Syntax) {
			switch n := n.(type) {
			case *ast.TypeSpec:
				values[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					values[name.Name] = true
				}
			case *ast.FuncDecl:
				values[n.Name.Name] = true
			}
		}
	}
	return mentions(Module+"/"+messages, func(name string) bool { return !values[name] })(t)
}

// pureCalls forbids some functions of a package in pure code. A function that
// is only mentioned can be called later, so a mention counts.
func pureCalls(target string, names ...string) func(*Tree) []Finding {
	return mentions(target, func(name string) bool { return slices.Contains(names, name) })
}

// pureCallsBut forbids all functions of a package but some; types are free.
func pureCallsBut(target string, names ...string) func(*Tree) []Finding {
	types := []string{"Rand", "Source", "Source64", "Zipf", "PCG", "ChaCha8"}
	return mentions(target, func(name string) bool {
		return !slices.Contains(names, name) && !slices.Contains(types, name)
	})
}

func mentions(target string, forbidden func(string) bool) func(*Tree) []Finding {
	return func(t *Tree) []Finding {
		return t.inspect(func(f *File) bool { return !f.Test && slices.Contains(pure, f.Dir) }, func(f *File, n ast.Node) string {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return ""
			}
			if from, name, ok := f.selector(s); ok && from == target && forbidden(name) {
				return "pure code mentions " + strings.TrimSuffix(target, "/v2") + "." + name
			}
			return ""
		})
	}
}

// inspect asks about every node of the chosen files.
func (t *Tree) inspect(which func(*File) bool, wrong func(f *File, n ast.Node) string) []Finding {
	var all []Finding
	for _, f := range t.Files {
		if !which(f) {
			continue
		}
		for n := range ast.Preorder(f.Syntax) {
			if what := wrong(f, n); what != "" {
				all = append(all, found(t.at(n), "%s", what))
			}
		}
	}
	return all
}
