package state_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios give now into testdata; read the diff")

// TestScenarios reads testdata/*.txt: a block of commands, a line of dashes,
// what the machine answered, an empty line. Comments begin with #.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(b))
			if *rewrite {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, have := strings.Split(string(b), "\n"), strings.Split(got, "\n")
			for i := range want {
				if i >= len(have) || want[i] != have[i] {
					t.Fatalf("%s:%d: want %q, got %q", f, i+1, want[i], strings.Join(have[min(i, len(have)-1):min(i+1, len(have))], ""))
				}
			}
		})
	}
}

func play(t *testing.T, text string) string {
	t.Helper()
	s := &stage{t: t, m: state.New(), ids: map[string]byte{}}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		in, _, _ := strings.Cut(block, "\n----")
		out.WriteString(in + "\n----\n")
		for line := range strings.Lines(in) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				out.WriteString(s.do(strings.Fields(line)))
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

type stage struct {
	t     *testing.T
	m     *state.Machine
	index uint64
	ids   map[string]byte // of nodes, by name
	last  []byte          // the last command's bytes, for a retry
}

// do performs one line and says what came of it.
func (s *stage) do(f []string) string {
	c := &state.Command{Request: state.RequestID{15: byte(s.index + 1)}, Time: 1_000_000 + int64(s.index)*1000}
	switch f[0] {
	case "show":
		return s.show(f[1])
	case "again": // the same bytes in another entry: a retry
		return s.apply(s.last)
	case "found":
		c.Found = &state.Found{Cluster: ident.ClusterID{1, byte(s.index + 1)}}
	case "register":
		c.Register = &state.Register{Node: s.node(f[1], f[2:])}
	case "create":
		patch, partitions := s.settings(f[2:])
		c.Create = &state.Create{ID: ident.TopicID{2, byte(s.index + 1)}, Spec: cluster.TopicSpec{Name: f[1], Partitions: partitions, SettingsPatch: patch}}
	case "alter":
		patch, _ := s.settings(f[2:])
		c.Alter = &state.Alter{Name: f[1], Patch: patch}
	case "delete":
		c.Delete = &state.Delete{Name: f[1]}
	default:
		s.t.Fatalf("unknown line %q", f)
	}
	b, err := state.Encode(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.last = b
	return s.apply(b)
}

func (s *stage) apply(b []byte) string {
	s.index++
	a, err := s.m.Apply(s.index, b)
	switch {
	case err != nil:
		return "error: " + err.Error() + "\n"
	case a.Refusal != nil:
		r := a.Refusal
		line := r.Code + ": " + r.Detail
		if r.Field != "" {
			line += fmt.Sprintf(" {field %s, allowed %q}", r.Field, r.Allowed)
		}
		if len(r.Differs) > 0 {
			line += fmt.Sprintf(" {differs %s}", strings.Join(r.Differs, " "))
		}
		return line + "\n"
	case a.Epoch != 0:
		return fmt.Sprintf("%d: broker epoch %d\n", s.index, a.Epoch)
	case a.Topic != nil && a.Created:
		return fmt.Sprintf("%d: created %s\n", a.Index, a.Topic.Name)
	case a.Topic != nil:
		return fmt.Sprintf("%d: %s, modified at %d\n", a.Index, a.Topic.Name, a.Topic.Modified)
	}
	return fmt.Sprintf("%d: ok\n", a.Index)
}

func (s *stage) node(name string, options []string) cluster.Node {
	if s.ids[name] == 0 {
		s.ids[name] = byte(len(s.ids) + 1)
	}
	n := cluster.Node{ID: ident.NodeID{s.ids[name]}, Name: name, Roles: []string{"broker", "coordinator"}, Storage: ident.StorageID{s.ids[name]}}
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		switch k {
		case "storage":
			n.Storage = ident.StorageID{byte(s.number(v))}
		case "called":
			n.Name = v
		case "roles":
			n.Roles = strings.FieldsFunc(v, func(r rune) bool { return r == ',' })
		default:
			s.t.Fatalf("unknown option %q", o)
		}
	}
	return n
}

func (s *stage) settings(options []string) (p cluster.SettingsPatch, partitions *int) {
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		switch k {
		case "partitions":
			partitions = new(s.number(v))
		case "replicas":
			p.Replicas = new(s.number(v))
		case "min_insync":
			p.MinInsync = new(s.number(v))
		case "age":
			p.RetentionAge = new(s.duration(v))
		case "bytes":
			p.RetentionBytes = new(int64(s.number(v)))
		case "max_message_bytes":
			p.MaxMessageBytes = new(s.number(v))
		case "durability":
			p.Durability = new(cluster.Durability(v))
		case "unclean":
			p.Unclean = new(v == "true")
		case "window":
			p.IdempotencyWindow = new(s.duration(v))
		default:
			s.t.Fatalf("unknown option %q", o)
		}
	}
	return p, partitions
}

func (s *stage) number(v string) int {
	n, err := strconv.Atoi(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *stage) show(topic string) string {
	snap := s.m.Snapshot()
	t, ok := snap.Topic(topic)
	if !ok {
		return fmt.Sprintf("no %s; %d deleted\n", topic, len(snap.Deleted))
	}
	x := t.Settings
	out := fmt.Sprintf("%s: replicas %d, min_insync %d, age %s, bytes %d, max %d, %s, unclean %v, window %s\n",
		t.Name, x.Replicas, x.MinInsync, x.RetentionAge, x.RetentionBytes, x.MaxMessageBytes, x.Durability, x.Unclean, x.IdempotencyWindow)
	for _, p := range t.Partitions {
		out += fmt.Sprintf("  %d %s replicas %s isr %s leader %s epoch %d version %d\n", p.Index, p.Range, s.names(p.Replicas), s.names(p.ISR), s.names([]ident.NodeID{p.Leader}), p.LeaderEpoch, p.Version)
	}
	return out
}

func (s *stage) names(ids []ident.NodeID) string {
	var names []string
	for _, id := range ids {
		for name, n := range s.ids {
			if n == id[0] {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ",")
}
