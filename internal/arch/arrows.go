package arch

import (
	"slices"
	"strings"
)

var (
	roles  = []string{"gateway", "broker", "coordinator"}
	leaves = []string{"internal/cluster", "internal/fault", "internal/ident", "internal/inbox", "internal/pace", "internal/parts", "internal/record", "internal/sleep", "internal/vfs", "internal/wire"}
)

func arrows() []Rule {
	return []Rule{
		{
			"roles-apart",
			"A role runs in a process of its own or beside the others; what one needs of another it asks by a small interface of its own.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					dir, ours := local(target)
					for _, role := range roles {
						if ours && under(f.Dir, role) && under(dir, roles...) && !under(dir, role) {
							return "a role imports another role"
						}
					}
					return ""
				})
			},
		},
		{
			"arrows-down",
			"What is shared lies below the roles: were it to know them, they would know one another through it.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					dir, ours := local(target)
					if !ours || !under(f.Dir, "internal") || under(f.Dir, "internal/testkit", "internal/arch") {
						return ""
					}
					if under(dir, roles...) || under(dir, "cmd", "e2e", "web") {
						return "internal imports what stands above it"
					}
					return ""
				})
			},
		},
		{
			"commands-on-top",
			"Commands put the parts together; nothing is built on a command.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					if dir, ours := local(target); ours && under(dir, "cmd") && !under(f.Dir, "cmd") {
						return "a command is imported"
					}
					return ""
				})
			},
		},
		{
			"leaves",
			"Leaves are what everything else is said in: they rest on the standard library, google/uuid and one another alone. internal/vfs is the seam to the operating system and may use golang.org/x/sys.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					if f.Test || !slices.Contains(leaves, f.Dir) || standard(target) || target == "github.com/google/uuid" {
						return ""
					}
					if dir, ours := local(target); ours && slices.Contains(leaves, dir) {
						return ""
					}
					if f.Dir == "internal/vfs" && under(target, "golang.org/x/sys") {
						return ""
					}
					return "a leaf imports what is no leaf"
				})
			},
		},
		only("one-home-raft", "Raft's types must not leak: the state machine is pure and the rest asks the coordinator.",
			[]string{"coordinator/consensus"}, "github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb"),
		only("one-home-memberlist", "Gossip finds nodes and nothing more; one adapter keeps it from deciding anything.",
			[]string{"internal/membership"}, "github.com/hashicorp/memberlist"),
		only("one-home-grpc", "Between processes everything goes through one dialer and one mapping of errors.",
			[]string{"internal/rpc"}, "google.golang.org/grpc", "google.golang.org/protobuf"),
		only("one-home-settings", "Flags, environment and file are read and ranked in one place.",
			[]string{"internal/boot"}, "github.com/knadh/koanf"),
		{
			"testkit-in-tests",
			"What is made for tests must not be linked into the binary.",
			func(t *Tree) []Finding {
				return t.imports(func(f *File, target string) string {
					if f.Test || under(f.Dir, "internal/testkit", "e2e") {
						return ""
					}
					dir, ours := local(target)
					if ours && under(dir, "internal/testkit", "e2e") || target == "testing" || strings.HasPrefix(target, "testing/") ||
						target == "pgregory.net/rapid" || target == "go.uber.org/goleak" {
						return "code of the binary imports a package for tests"
					}
					return ""
				})
			},
		},
	}
}

// only lets a module (with its packages and major versions) be imported in the homes alone.
func only(name, reason string, homes []string, modules ...string) Rule {
	return Rule{name, reason, func(t *Tree) []Finding {
		return t.imports(func(f *File, target string) string {
			if under(target, modules...) && !under(f.Dir, homes...) {
				return "its home is " + strings.Join(homes, ", ")
			}
			return ""
		})
	}}
}

// imports asks about every import of every file.
func (t *Tree) imports(wrong func(f *File, target string) string) []Finding {
	var all []Finding
	for _, f := range t.Files {
		for _, spec := range f.Syntax.Imports {
			target := strings.Trim(spec.Path.Value, "`\"")
			if what := wrong(f, target); what != "" {
				all = append(all, found(t.at(spec), "imports %s: %s", target, what))
			}
		}
	}
	return all
}
