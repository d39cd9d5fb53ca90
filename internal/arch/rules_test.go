package arch

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Each rule beside small modules that break it, and others that come close.
// "files" is a txtar-like text: a line "-- path --", then the file.
var samples = []struct {
	rule string
	bad  []string
	good []string
}{
	{
		"roles-apart",
		[]string{
			"-- gateway/deliver/a.go --\npackage deliver\nimport _ \"tidewire/broker\"\n",
			"-- broker/a_test.go --\npackage broker\nimport _ \"tidewire/coordinator/state\"\n",
		},
		[]string{"-- gateway/deliver/a.go --\npackage deliver\nimport _ \"tidewire/gateway/topology\"\nimport _ \"tidewire/internal/ident\"\n"},
	},
	{
		"arrows-down",
		[]string{
			"-- internal/boot/a.go --\npackage boot\nimport _ \"tidewire/gateway\"\n",
			"-- internal/run/a.go --\npackage run\nimport _ \"tidewire/cmd/tidewire\"\n",
		},
		[]string{
			"-- internal/testkit/cluster/a.go --\npackage cluster\nimport _ \"tidewire/gateway\"\n",
			"-- internal/run/a.go --\npackage run\nimport _ \"tidewire/internal/obs\"\n",
		},
	},
	{
		"commands-on-top",
		[]string{"-- e2e/a_test.go --\npackage e2e\nimport _ \"tidewire/cmd/tidewire\"\n"},
		[]string{"-- cmd/tidewire/a.go --\npackage main\nimport _ \"tidewire/gateway\"\nimport _ \"tidewire/broker\"\n"},
	},
	{
		"leaves",
		[]string{
			"-- internal/record/a.go --\npackage record\nimport _ \"github.com/klauspost/compress/zstd\"\n",
			"-- internal/ident/a.go --\npackage ident\nimport _ \"tidewire/internal/rpc\"\n",
		},
		[]string{
			"-- internal/record/a.go --\npackage record\nimport _ \"hash/crc32\"\nimport _ \"github.com/google/uuid\"\nimport _ \"tidewire/internal/ident\"\n",
			"-- internal/record/a_test.go --\npackage record\nimport _ \"pgregory.net/rapid\"\n",
		},
	},
	{
		"one-home-raft",
		[]string{
			"-- coordinator/state/a.go --\npackage state\nimport _ \"github.com/hashicorp/raft\"\n",
			"-- coordinator/a_test.go --\npackage coordinator\nimport _ \"github.com/hashicorp/raft-boltdb/v2\"\n",
		},
		[]string{"-- coordinator/consensus/a.go --\npackage consensus\nimport _ \"github.com/hashicorp/raft\"\nimport _ \"github.com/hashicorp/raft-boltdb/v2\"\n"},
	},
	{
		"one-home-memberlist",
		[]string{"-- internal/run/a.go --\npackage run\nimport _ \"github.com/hashicorp/memberlist\"\n"},
		[]string{"-- internal/membership/a.go --\npackage membership\nimport _ \"github.com/hashicorp/memberlist\"\n"},
	},
	{
		"one-home-grpc",
		[]string{
			"-- broker/serve/a.go --\npackage serve\nimport _ \"google.golang.org/grpc/codes\"\n",
			"-- broker/serve/a.go --\npackage serve\nimport _ \"google.golang.org/protobuf/proto\"\n",
		},
		[]string{"-- internal/rpc/a.go --\npackage rpc\nimport _ \"google.golang.org/grpc\"\n"},
	},
	{
		"one-home-settings",
		[]string{"-- cmd/tidewire/a.go --\npackage main\nimport _ \"github.com/knadh/koanf/v2\"\n"},
		[]string{"-- internal/boot/a.go --\npackage boot\nimport _ \"github.com/knadh/koanf/v2\"\n"},
	},
	{
		"testkit-in-tests",
		[]string{
			"-- broker/a.go --\npackage broker\nimport _ \"tidewire/internal/testkit/faultfs\"\n",
			"-- broker/a.go --\npackage broker\nimport _ \"testing\"\n",
		},
		[]string{
			"-- broker/a_test.go --\npackage broker\nimport _ \"tidewire/internal/testkit/faultfs\"\nimport _ \"testing\"\n",
			"-- internal/testkit/cluster/a.go --\npackage cluster\nimport _ \"testing\"\n",
		},
	},
	{
		"pure-imports",
		[]string{
			"-- broker/partition/a.go --\npackage partition\nimport _ \"net\"\n",
			"-- broker/partition/a.go --\npackage partition\nimport _ \"net/http\"\n",
			"-- coordinator/state/a.go --\npackage state\nimport _ \"os\"\n",
			"-- gateway/cursor/a.go --\npackage cursor\nimport _ \"log/slog\"\n",
			"-- internal/wire/a.go --\npackage wire\nimport _ \"tidewire/internal/obs\"\n",
		},
		[]string{
			"-- gateway/cursor/a.go --\npackage cursor\nimport _ \"net/url\"\nimport _ \"tidewire/internal/ident\"\n",
			"-- gateway/cursor/a_test.go --\npackage cursor\nimport _ \"os\"\n",
			"-- broker/replica/a.go --\npackage replica\nimport _ \"log/slog\"\n",
		},
	},
	{
		"pure-messages",
		[]string{"-- internal/rpc/data.go --\npackage rpc\ntype Append struct{}\n-- internal/rpc/dial.go --\npackage rpc\nfunc Dial() {}\n-- broker/partition/a.go --\npackage partition\nimport \"tidewire/internal/rpc\"\nfunc f() { rpc.Dial() }\n"},
		[]string{"-- internal/rpc/data.go --\npackage rpc\ntype Append struct{}\n-- broker/partition/a.go --\npackage partition\nimport \"tidewire/internal/rpc\"\nfunc f(rpc.Append) {}\n"},
	},
	{
		"pure-time",
		[]string{
			"-- coordinator/state/a.go --\npackage state\nimport \"time\"\nfunc f() time.Time { return time.Now() }\n",
			"-- coordinator/state/a.go --\npackage state\nimport \"time\"\nvar clock = time.Now\n",
			"-- coordinator/state/a.go --\npackage state\nimport clock \"time\"\nfunc f() { <-clock.After(clock.Second) }\n",
		},
		[]string{
			"-- coordinator/state/a.go --\npackage state\nimport \"time\"\nfunc f(now time.Time) time.Time { return now.Add(time.Second) }\n",
			"-- coordinator/watch/a.go --\npackage watch\nimport \"time\"\nvar clock = time.Now\n",
		},
	},
	{
		"pure-chance",
		[]string{
			"-- coordinator/placement/a.go --\npackage placement\nimport \"math/rand/v2\"\nfunc f() int { return rand.IntN(3) }\n",
			"-- coordinator/placement/a.go --\npackage placement\nimport \"math/rand\"\nfunc f() int { return rand.Intn(3) }\n",
			"-- coordinator/state/a.go --\npackage state\nimport \"github.com/google/uuid\"\nfunc f() uuid.UUID { return uuid.New() }\n",
		},
		[]string{
			"-- coordinator/placement/a.go --\npackage placement\nimport \"math/rand/v2\"\nfunc f(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }\n",
			"-- coordinator/state/a.go --\npackage state\nimport \"github.com/google/uuid\"\nfunc f(s string) (uuid.UUID, error) { return uuid.Parse(s) }\n",
		},
	},
	{
		"no-bare-go",
		[]string{"-- broker/a.go --\npackage broker\nfunc f() { go f() }\n"},
		[]string{
			"-- broker/a.go --\npackage broker\nimport \"sync\"\nfunc f(wg *sync.WaitGroup) { wg.Go(func() {}) }\n",
			"-- broker/a_test.go --\npackage broker\nfunc f() { go f() }\n",
		},
	},
	{
		"no-init",
		[]string{"-- broker/a.go --\npackage broker\nfunc init() {}\n"},
		[]string{
			"-- broker/a.go --\npackage broker\ntype t struct{}\nfunc (t) init() {}\n",
			"-- broker/a.go --\n// Code generated by protoc-gen-go. DO NOT EDIT.\n\npackage broker\nfunc init() {}\n",
		},
	},
	{
		"no-package-state",
		[]string{
			"-- broker/a.go --\npackage broker\nvar n int\nfunc f() { n++ }\n",
			"-- broker/a.go --\npackage broker\nvar m = map[string]int{}\n-- broker/b.go --\npackage broker\nfunc f() { m[\"a\"] = 1 }\n",
			"-- broker/a.go --\npackage broker\nvar m = map[string]int{}\nfunc f() { delete(m, \"a\") }\n",
			"-- broker/a.go --\npackage broker\nvar c struct{ n int }\nfunc f() { c.n = 1 }\n",
			"-- broker/a.go --\npackage broker\nimport \"sync\"\nvar mu sync.Mutex\n",
			"-- broker/a.go --\npackage broker\nimport \"sync/atomic\"\nvar p atomic.Pointer[int]\n",
			"-- broker/a.go --\npackage broker\nimport \"github.com/prometheus/client_golang/prometheus\"\nvar c = prometheus.NewCounter(prometheus.CounterOpts{})\n",
		},
		[]string{
			"-- broker/a.go --\npackage broker\nvar n int\nfunc f(n int) { n++ }\n",
			"-- broker/a.go --\npackage broker\nvar m = map[string]int{}\nfunc f() { m := map[string]int{}; m[\"a\"] = 1 }\n",
			"-- broker/a.go --\npackage broker\nvar table = [2]string{\"a\", \"b\"}\nfunc f() string { return table[0] }\n",
			"-- broker/a.go --\npackage broker\nimport \"sync\"\nvar buffers sync.Pool\ntype t struct{ mu sync.Mutex }\n",
			"-- broker/a.go --\npackage broker\ntype t struct{ n int }\nfunc (x *t) f() { x.n = 1 }\nvar _ = t{}\n",
		},
	},
	{
		"no-global-registry",
		[]string{
			"-- broker/a.go --\npackage broker\nimport \"github.com/prometheus/client_golang/prometheus\"\nfunc f(c prometheus.Collector) { prometheus.MustRegister(c) }\n",
			"-- gateway/a.go --\npackage gateway\nimport \"net/http\"\nfunc f(h http.Handler) { http.Handle(\"/\", h) }\n",
			"-- gateway/a.go --\npackage gateway\nimport \"log/slog\"\nfunc f() { slog.Info(\"x\") }\n",
			"-- gateway/a.go --\npackage gateway\nimport \"log\"\nfunc f() { log.Println(\"x\") }\n",
		},
		[]string{
			"-- broker/a.go --\npackage broker\nimport \"github.com/prometheus/client_golang/prometheus\"\nfunc f(r prometheus.Registerer, c prometheus.Collector) { r.MustRegister(c) }\n",
			"-- gateway/a.go --\npackage gateway\nimport \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"x\", slog.String(\"topic\", \"t\")) }\n",
			"-- gateway/a.go --\npackage gateway\nimport \"net/http\"\nfunc f() *http.ServeMux { return http.NewServeMux() }\n",
		},
	},
	{
		"environment-in-one-place",
		[]string{"-- gateway/a.go --\npackage gateway\nimport \"os\"\nvar x = os.Getenv(\"X\")\n"},
		[]string{
			"-- internal/boot/a.go --\npackage boot\nimport \"os\"\nfunc f() string { return os.Getenv(\"X\") }\n",
			"-- gateway/a_test.go --\npackage gateway\nimport \"os\"\nvar x = os.Getenv(\"X\")\n",
		},
	},
	{
		"file-seam",
		[]string{"-- broker/storage/a.go --\npackage storage\nimport \"os\"\nfunc f() error { return os.Remove(\"x\") }\n"},
		[]string{
			"-- broker/storage/a.go --\npackage storage\nimport \"os\"\nvar gone = os.ErrNotExist\n",
			"-- internal/vfs/a.go --\npackage vfs\nimport \"os\"\nfunc f() error { return os.Remove(\"x\") }\n",
		},
	},
	{
		"package-names",
		[]string{"-- internal/util/a.go --\npackage util\n"},
		[]string{"-- internal/record/a.go --\npackage record\n"},
	},
	{
		"package-comments",
		[]string{"-- broker/a.go --\n\npackage broker\n"},
		[]string{
			"-- broker/a.go --\npackage broker\n-- broker/doc.go --\n// Package broker keeps records.\npackage broker\n",
			"-- e2e/a_test.go --\npackage e2e\n",
		},
	},
	{
		"no-loose-ends",
		[]string{"-- broker/a.go --\npackage broker\n\n// TO" + "DO: later\n", "-- broker/a_test.go --\npackage broker\n\n/* FIX" + "ME */\n"},
		[]string{"-- broker/a.go --\npackage broker\n\n// Everything is done.\nvar mark = \"TO" + "DO\"\n"},
	},
	{
		"no-skips",
		[]string{
			"-- broker/a_test.go --\npackage broker\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip(\"slow\") }\n",
			"-- broker/a_test.go --\npackage broker\nimport \"testing\"\nfunc TestX(t *testing.T) { t.SkipNow() }\n",
		},
		[]string{
			"-- e2e/a_test.go --\npackage e2e\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skipf(\"needs root rights: %v\", 1) }\n",
			"-- internal/wire/a.go --\npackage wire\ntype d struct{}\nfunc (d) Skip() {}\nfunc f(dec d) { dec.Skip() }\n",
		},
	},
	{
		"no-sleep",
		[]string{
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\")\nfunc TestX(t *testing.T) { time.Sleep(1) }\n",
			"-- broker/a_test.go --\npackage broker\nimport \"time\"\nfunc wait() { time.Sleep(1) }\n",
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\")\nfunc TestX(t *testing.T) { both(t, func(t *testing.T) { time.Sleep(1) }) }\nfunc both(t *testing.T, f func(t *testing.T)) { f(t) }\n",
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\"; \"testing/synctest\")\nfunc TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }\n",
		},
		[]string{
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\"; \"testing/synctest\")\nfunc TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n",
			"-- broker/a_test.go --\npackage broker\nimport (\"time\"; _ \"testing/synctest\")\nfunc wait() { time.Sleep(1) }\n",
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\")\nfunc TestX(t *testing.T) { both(t, func(t *testing.T) { time.Sleep(1) }) }\n-- broker/b_test.go --\npackage broker\nimport (\"testing\"; \"testing/synctest\")\nfunc both(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }\n",
			"-- broker/a.go --\npackage broker\nimport \"time\"\nfunc wait() { time.Sleep(1) }\n",
			"-- broker/a_test.go --\npackage broker\nimport (\"testing\"; \"time\")\nfunc BenchmarkX(b *testing.B) { time.Sleep(1) }\n",
		},
	},
}

func sample(t *testing.T, text string) *Tree {
	t.Helper()
	fsys, name := fstest.MapFS{}, ""
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(head, " --\n")
			fsys[name] = &fstest.MapFile{}
			continue
		}
		fsys[name].Data = append(fsys[name].Data, line...)
	}
	tree, err := Load(fsys)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return tree
}

func TestEachRuleCanFail(t *testing.T) {
	rules := map[string]Rule{}
	for _, r := range Rules() {
		if r.Reason == "" {
			t.Errorf("%s has no reason", r.Name)
		}
		rules[r.Name] = r
	}
	for _, s := range samples {
		rule, ok := rules[s.rule]
		if !ok {
			t.Errorf("samples of %s, which is no rule", s.rule)
			continue
		}
		delete(rules, s.rule)
		for _, text := range s.bad {
			if n := len(rule.Check(sample(t, text))); n != 1 {
				t.Errorf("%s finds %d faults, want 1, in\n%s", s.rule, n, text)
			}
		}
		for _, text := range s.good {
			for _, f := range rule.Check(sample(t, text)) {
				t.Errorf("%s finds %v in\n%s", s.rule, f, text)
			}
		}
	}
	for name := range rules {
		t.Errorf("no sample breaks %s", name)
	}
}

func TestWhatIsNotTheModuleIsNotRead(t *testing.T) {
	bad := "package x\nfunc init() {}\n"
	for _, dir := range []string{"broker/testdata", ".cache", "web/node_modules/x", "bench"} {
		tree := sample(t, "-- bench/go.mod --\nmodule bench\n-- "+dir+"/a.go --\n"+bad)
		if len(tree.Files) != 0 {
			t.Errorf("%s was read", dir)
		}
	}
}

func TestLongFilesAreListedLongestFirst(t *testing.T) {
	tree := sample(t, "-- a/a.go --\npackage a\n"+strings.Repeat("\n", LongLines)+
		"-- a/b.go --\npackage a\n"+strings.Repeat("\n", LongLines+1)+
		"-- a/c.go --\npackage a\n"+strings.Repeat("\n", LongLines-1))
	long := tree.Long()
	if len(long) != 2 || long[0].Path != "a/b.go" || long[1].Path != "a/a.go" {
		t.Errorf("%v", long)
	}
}
