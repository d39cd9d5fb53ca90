package boot

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/spf13/pflag"
)

// nodeCommand is how one node of the example cluster is started.
type nodeCommand struct {
	args  []string
	given map[string]string // flags and their values
	cfg   Config
}

// read is a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parseNode reads the arguments of serve as a node does.
func parseNode(t *testing.T, who string, args []string) nodeCommand {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(fs)
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("%s does not serve: %q", who, args)
	}
	if err := fs.Parse(args[1:]); err != nil || fs.NArg() > 0 {
		t.Fatalf("%s: %v, left over %q", who, err, fs.Args())
	}
	cfg, err := Load(Source{Flags: fs, Hostname: who})
	if err != nil {
		t.Fatalf("%s would not start: %v", who, err)
	}
	n := nodeCommand{args: args, given: map[string]string{}, cfg: cfg}
	fs.Visit(func(f *pflag.Flag) { n.given[f.Name] = f.Value.String() })
	return n
}

// gossip is where others find the node.
func (n nodeCommand) gossip() string { return Advertised(n.cfg.AdvertiseGossip, n.cfg.Gossip) }

// madeNodes are the nodes that make cluster runs, as make would.
func madeNodes(t *testing.T) []nodeCommand {
	t.Helper()
	cmd := exec.Command("make", "-n", "cluster")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make -n cluster: %v", err)
	}
	var nodes []nodeCommand
	for _, m := range regexp.MustCompile(`(?m)^\./bin/tidewire (serve [^>&;|]*)`).FindAllStringSubmatch(string(out), -1) {
		nodes = append(nodes, parseNode(t, fmt.Sprintf("node %d of make cluster", len(nodes)+1), strings.Fields(m[1])))
	}
	return nodes
}

type composeFile struct {
	Services map[string]struct {
		Command     []string `json:"command"`
		Hostname    string   `json:"hostname"`
		Ports       []string `json:"ports"`
		Volumes     []string `json:"volumes"`
		Healthcheck struct {
			Test []string `json:"test"`
		} `json:"healthcheck"`
		Build struct {
			Context string `json:"context"`
		} `json:"build"`
	} `json:"services"`
	Volumes map[string]any `json:"volumes"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	tree, err := yaml.Parser().Unmarshal([]byte(read(t, "docker-compose.yml")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Three containers and three processes are started alike: nothing builds a
// container where this is tested, so what is tested as processes has to be what runs
// in containers.
func TestComposeStartsWhatMakeClusterStarts(t *testing.T) {
	made, compose := madeNodes(t), readCompose(t)
	if len(made) != 3 || len(compose.Services) != 3 {
		t.Fatalf("%d nodes of make cluster, %d of docker-compose.yml", len(made), len(compose.Services))
	}
	var contained []nodeCommand
	for _, name := range slices.Sorted(maps.Keys(compose.Services)) {
		s := compose.Services[name]
		n := parseNode(t, name, s.Command)
		contained = append(contained, n)
		if n.cfg.Name != name || s.Hostname != name || s.Build.Context != "." {
			t.Errorf("%s: named %s, host %s, built from %q", name, n.cfg.Name, s.Hostname, s.Build.Context)
		}
		if !slices.Equal(s.Volumes, []string{name + ":" + n.cfg.Data}) {
			t.Errorf("%s: its data is in %s, volumes %q", name, n.cfg.Data, s.Volumes)
		}
		if _, ok := compose.Volumes[name]; !ok {
			t.Errorf("%s: there is no volume of this name", name)
		}
		_, port, _ := strings.Cut(n.cfg.HTTP, ":")
		if want := n.cfg.AdvertiseHTTP + ":" + port; !slices.Equal(s.Ports, []string{want}) || !strings.HasPrefix(want, "127.0.0.1:") {
			t.Errorf("%s: ports %q, want %s alone, on loopback", name, s.Ports, want)
		}
		for what, addr := range map[string][2]string{"rpc": {n.cfg.AdvertiseRPC, n.cfg.RPC}, "raft": {n.cfg.AdvertiseRaft, n.cfg.Raft}, "gossip": {n.cfg.AdvertiseGossip, n.cfg.Gossip}} {
			_, port, _ := strings.Cut(addr[1], ":")
			if addr[0] != name+":"+port {
				t.Errorf("%s: others dial %s for %s, it listens on %s", name, addr[0], what, addr[1])
			}
		}
		if !slices.Equal(s.Healthcheck.Test[:2], []string{"CMD", "/tidewire"}) || s.Healthcheck.Test[2] != "healthcheck" {
			t.Errorf("%s: its health is asked by %q", name, s.Healthcheck.Test)
		}
		// What a container needs besides.
		for _, more := range []string{"advertise-http", "advertise-rpc", "advertise-raft", "advertise-gossip", "insecure"} {
			if _, ok := n.given[more]; !ok {
				t.Errorf("%s: no --%s", name, more)
			}
			delete(n.given, more)
		}
	}
	for i := range made {
		a, b := made[i], contained[i]
		if x, y := slices.Sorted(maps.Keys(a.given)), slices.Sorted(maps.Keys(b.given)); !slices.Equal(x, y) {
			t.Errorf("make cluster gives %q, docker-compose.yml %q", x, y)
		}
		if a.cfg.Name != b.cfg.Name || a.cfg.BootstrapExpect != 3 || b.cfg.BootstrapExpect != 3 || !slices.Equal(a.cfg.Roles, b.cfg.Roles) || len(a.cfg.Roles) != 3 {
			t.Errorf("make cluster runs %+v, docker-compose.yml %+v", a.cfg, b.cfg)
		}
		for _, nodes := range [][]nodeCommand{made, contained} {
			var all []string
			for _, n := range nodes {
				all = append(all, n.gossip())
			}
			if !slices.Equal(nodes[i].cfg.Join, all) {
				t.Errorf("%s joins %q, the nodes are at %q", nodes[i].cfg.Name, nodes[i].cfg.Join, all)
			}
		}
	}
	distinct(t, "addresses of make cluster", made, func(n nodeCommand) []string {
		return []string{n.cfg.HTTP, n.cfg.RPC, n.cfg.Raft, n.cfg.Gossip}
	})
	distinct(t, "folders of make cluster", made, func(n nodeCommand) []string { return []string{n.cfg.Data} })
}

func distinct(t *testing.T, what string, nodes []nodeCommand, of func(nodeCommand) []string) {
	t.Helper()
	var all []string
	for _, n := range nodes {
		all = append(all, of(n)...)
	}
	if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%s: %q", what, all)
	}
}

// The image runs the binary that the health check names, and begins as the
// commands of docker-compose.yml do, which replace its own.
func TestTheImageStartsWhatComposeStarts(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	instruction := func(name string) (words []string) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + name + ` (\[.*\])$`).FindStringSubmatch(dockerfile)
		if m == nil {
			t.Fatalf("the Dockerfile has no %s", name)
		}
		if err := json.Unmarshal([]byte(m[1]), &words); err != nil {
			t.Fatal(err)
		}
		return words
	}
	if entry := instruction("ENTRYPOINT"); !slices.Equal(entry, []string{"/tidewire"}) {
		t.Errorf("the image runs %q", entry)
	}
	alone := parseNode(t, "the image", instruction("CMD"))
	for name, s := range readCompose(t).Services {
		n := parseNode(t, name, s.Command)
		for flag, value := range alone.given {
			if n.given[flag] != value {
				t.Errorf("%s is started with --%s=%s, the image with %s", name, flag, n.given[flag], value)
			}
		}
	}
	for _, want := range []string{"FROM scratch", "CGO_ENABLED=0", "USER 65532:65532", "VOLUME " + alone.cfg.Data, "STOPSIGNAL SIGTERM", "COPY --from=build /out/tidewire /tidewire"} {
		if !strings.Contains(dockerfile, want+"\n") && !strings.Contains(dockerfile, want+" ") {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	for _, addr := range []string{alone.cfg.HTTP, alone.cfg.RPC, alone.cfg.Raft, alone.cfg.Gossip} {
		_, port, _ := strings.Cut(addr, ":")
		exposed := regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(dockerfile)
		if exposed == nil || !slices.ContainsFunc(strings.Fields(exposed[1]), func(p string) bool { return p == port || p == port+"/tcp" }) {
			t.Errorf("the Dockerfile does not expose %s", port)
		}
	}
}
