package state_test

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/scenario"
)

// TestScenarios plays commands of testdata/*.txt against what the machine answers.
func TestScenarios(t *testing.T) {
	scenario.Run(t, func(t *testing.T) scenario.Player {
		return (&stage{t: t, m: state.New(), ids: map[string]byte{}, noted: map[string]ident.BrokerEpoch{}}).do
	})
}

type stage struct {
	t     *testing.T
	m     *state.Machine
	index uint64
	ids   map[string]byte              // of nodes, by name
	noted map[string]ident.BrokerEpoch // what a node's folder has noted last
	last  []byte                       // the last command's bytes, for a retry
}

// do performs one line and says what came of it.
func (s *stage) do(f []string) string {
	c := &state.Command{Request: state.RequestID{14: byte(s.index >> 8), 15: byte(s.index + 1)}, Time: 1_000_000 + int64(s.index)*1000}
	switch f[0] {
	case "show":
		return s.show(f[1:])
	case "nodes":
		return s.nodes()
	case "again": // the same bytes in another entry: a retry
		return s.apply(s.last)
	case "start": // a whole start: registered, noted, activated
		out := s.do(append([]string{"register"}, f[1:]...))
		n := s.m.Snapshot().Nodes[ident.NodeID{s.ids[f[1]]}]
		if n == nil || n.BrokerEpoch != ident.BrokerEpoch(s.index) {
			return out
		}
		s.noted[f[1]] = n.BrokerEpoch
		return strings.TrimSuffix(out, "\n") + ", " + s.do([]string{"activate", f[1]})
	case "found":
		c.Found = &state.Found{Cluster: ident.ClusterID{1, byte(s.index + 1)}}
	case "register":
		c.Register = s.register(f[1], f[2:])
	case "note": // the folder notes its broker epoch
		s.noted[f[1]] = s.life(f[1]).Epoch
		return fmt.Sprintf("%s notes %d\n", f[1], s.noted[f[1]])
	case "activate":
		l := s.life(f[1])
		c.Activate = &cluster.Activate{Node: l.Node, Epoch: l.Epoch}
	case "expire":
		c.Expire = &cluster.Expire{}
		for _, name := range f[1:] {
			c.Expire.Lives = append(c.Expire.Lives, s.life(name))
		}
	case "insync":
		c.Insync = &cluster.Insync{Leader: s.life(f[1])}
		for ref, options := range s.parts(f[2:]) {
			t, p := s.partition(ref)
			o := cluster.InsyncOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch, Version: p.Version}
			for k, v := range options {
				switch k {
				case "isr":
					for name := range strings.SplitSeq(v, ",") {
						o.ISR = append(o.ISR, s.life(name))
					}
				case "version":
					o.Version = uint64(s.number(v))
				case "epoch":
					o.Epoch = ident.Epoch(s.number(v))
				}
			}
			c.Insync.Of = append(c.Insync.Of, o)
		}
	case "unfit":
		c.Unfit = &cluster.Unfit{Life: s.life(f[1])}
		for _, ref := range f[2:] {
			t, p := s.partition(ref)
			c.Unfit.Partitions = append(c.Unfit.Partitions, t.Ref(p.Index))
		}
	case "elect", "takeover", "inherit":
		c.Elect = &cluster.Elect{}
		for ref, options := range s.parts(f[1:]) {
			t, p := s.partition(ref)
			o := cluster.ElectOf{Partition: t.Ref(p.Index), Version: p.Version, Leader: s.life(options["leader"]).Node, Takeover: f[0] == "takeover"}
			if v := options["version"]; v != "" {
				o.Version = uint64(s.number(v))
			}
			if f[0] == "inherit" {
				o.Unclean = s.life(options["leader"]).Epoch
			}
			c.Elect.Of = append(c.Elect.Of, o)
		}
	case "move", "cancel", "prefer":
		c.Move = &cluster.Move{}
		for ref, options := range s.parts(f[1:]) {
			t, p := s.partition(ref)
			o := cluster.MoveOf{Partition: t.Ref(p.Index), Version: p.Version}
			for name := range strings.FieldsFuncSeq(options["add"], isComma) {
				o.Add = append(o.Add, s.life(name).Node)
			}
			for name := range strings.FieldsFuncSeq(options["remove"], isComma) {
				o.Remove = append(o.Remove, s.life(name).Node)
			}
			if name := options["first"]; name != "" {
				o.First = s.life(name).Node
			}
			c.Move.Of = append(c.Move.Of, o)
		}
	case "drain":
		c.Drain = &cluster.Drain{Node: s.life(f[1]).Node}
	case "undrain":
		c.Drain = &cluster.Drain{Node: s.life(f[1]).Node, Cancel: true}
	case "retire":
		c.Retire = &cluster.Retire{Node: s.life(f[1]).Node}
	case "create":
		patch, partitions := s.settings(f[2:])
		c.Create = &cluster.Create{ID: ident.TopicID{2, byte(s.index + 1)}, Spec: cluster.TopicSpec{Name: f[1], Partitions: partitions, SettingsPatch: patch}}
	case "alter":
		patch, _ := s.settings(f[2:])
		c.Alter = &cluster.Alter{Name: f[1], Patch: patch}
	case "delete":
		c.Delete = &cluster.Delete{Name: f[1]}
	case "purge": // purge orders/0 before=42 orders/1 before=7 epoch=1
		c.Purge = &cluster.Purge{}
		for ref, options := range s.parts(f[1:]) {
			t, p := s.partition(ref)
			o := cluster.PurgeOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch, Before: ident.Offset(s.number(options["before"]))}
			if v := options["epoch"]; v != "" {
				o.Epoch = ident.Epoch(s.number(v))
			}
			c.Purge.Of = append(c.Purge.Of, o)
		}
	default:
		if out, done := s.groupLine(f, c); done {
			return out
		}
	}
	b, err := state.Encode(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.last = b
	return s.apply(b)
}

func isComma(r rune) bool { return r == ',' }

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
	case a.Taken != nil:
		out := fmt.Sprintf("%d: taken %v\n", a.Index, a.Taken)
		for _, c := range a.Clamped {
			out += fmt.Sprintf("  %s goes back from %d to %d on partition %d\n", c.Group, c.From, c.To, c.Partition.Index)
		}
		return out
	case a.Member != 0:
		return fmt.Sprintf("%d: member epoch %d\n", a.Index, a.Member)
	case a.Group != nil && a.Created:
		return fmt.Sprintf("%d: registered %s\n", a.Index, a.Group.Name)
	case a.Group != nil:
		return fmt.Sprintf("%d: %s, modified at %d\n", a.Index, a.Group.Name, a.Group.Modified)
	case a.Topic != nil && a.Created:
		return fmt.Sprintf("%d: created %s\n", a.Index, a.Topic.Name)
	case a.Topic != nil:
		return fmt.Sprintf("%d: %s, modified at %d\n", a.Index, a.Topic.Name, a.Topic.Modified)
	}
	return fmt.Sprintf("%d: ok\n", a.Index)
}

// life is a node's latest one, or, written a@7, another.
func (s *stage) life(name string) cluster.Life {
	name, epoch, given := strings.Cut(name, "@")
	if s.ids[name] == 0 {
		s.ids[name] = byte(len(s.ids) + 1)
	}
	l := cluster.Life{Node: ident.NodeID{s.ids[name]}}
	if given {
		l.Epoch = ident.BrokerEpoch(s.number(epoch))
	} else if n := s.m.Snapshot().Nodes[l.Node]; n != nil {
		l.Epoch = n.BrokerEpoch
	}
	return l
}

// parts reads partitions and the options after each: orders/0 isr=a,b orders/1 isr=b.
func (s *stage) parts(words []string) iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		for i := 0; i < len(words); {
			ref, options := words[i], map[string]string{}
			for i++; i < len(words) && strings.Contains(words[i], "="); i++ {
				k, v, _ := strings.Cut(words[i], "=")
				options[k] = v
			}
			if !yield(ref, options) {
				return
			}
		}
	}
}

// partition finds orders/0; one that is not there has a name of its own.
func (s *stage) partition(ref string) (*cluster.Topic, *cluster.Partition) {
	name, number, _ := strings.Cut(ref, "/")
	t, ok := s.m.Snapshot().Topic(name)
	if !ok {
		return &cluster.Topic{ID: ident.TopicID{99}}, &cluster.Partition{}
	}
	p, ok := t.Partition(ident.Index(s.number(number)))
	if !ok {
		return t, &cluster.Partition{Index: ident.Index(s.number(number))}
	}
	return t, p
}

func (s *stage) register(name string, options []string) *cluster.Register {
	id := s.life(name).Node
	r := &cluster.Register{Last: s.noted[name], Node: cluster.Node{
		ID: id, Name: name, Roles: []string{"broker", "coordinator"}, Storage: ident.StorageID{id[0]}, Boot: "first",
	}}
	n := &r.Node
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		switch k {
		case "storage":
			n.Storage = ident.StorageID{byte(s.number(v))}
		case "called":
			n.Name = v
		case "zone":
			n.Zone = v
		case "boot":
			n.Boot = v
		case "last":
			r.Last = ident.BrokerEpoch(s.number(v))
		case "unfit":
			for ref := range strings.SplitSeq(v, ",") {
				t, p := s.partition(ref)
				r.Unfit = append(r.Unfit, t.Ref(p.Index))
			}
		case "roles":
			n.Roles = strings.FieldsFunc(v, isComma)
		default:
			s.t.Fatalf("unknown option %q", o)
		}
	}
	return r
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

// show tells a topic, or only its partitions: show orders partitions.
func (s *stage) show(f []string) string {
	snap := s.m.Snapshot()
	t, ok := snap.Topic(f[0])
	if !ok {
		return fmt.Sprintf("no %s; %d deleted\n", f[0], len(snap.Deleted))
	}
	x := t.Settings
	out := fmt.Sprintf("%s: replicas %d, min_insync %d, age %s, bytes %d, max %d, %s, unclean %v, window %s\n",
		t.Name, x.Replicas, x.MinInsync, x.RetentionAge, x.RetentionBytes, x.MaxMessageBytes, x.Durability, x.Unclean, x.IdempotencyWindow)
	if len(f) > 1 {
		out = ""
	}
	for _, p := range t.Partitions {
		out += fmt.Sprintf("  %d", p.Index)
		if len(f) == 1 {
			out += " " + p.Range.String()
		}
		out += fmt.Sprintf(" replicas %s isr %s", s.names(p.Replicas), s.names(p.ISR))
		for _, list := range []struct {
			word string
			ids  []ident.NodeID
		}{{"elr", p.ELR}, {"adding", p.Adding}, {"removing", p.Removing}} {
			if len(list.ids) > 0 {
				out += " " + list.word + " " + s.names(list.ids)
			}
		}
		out += fmt.Sprintf(" leader %s epoch %d version %d", s.names([]ident.NodeID{p.Leader}), p.LeaderEpoch, p.Version)
		if p.Unclean != 0 {
			out += fmt.Sprintf(" unclean since epoch %d", p.Unclean)
		}
		if p.Unclamped != 0 {
			out += fmt.Sprintf(" unclamped since epoch %d", p.Unclamped)
		}
		if p.Purged != 0 {
			out += fmt.Sprintf(" purged below %d", p.Purged)
		}
		out += "\n"
	}
	return out
}

func (s *stage) nodes() string {
	var lines []string
	for _, n := range s.m.Snapshot().Nodes {
		line := fmt.Sprintf("  %s %s, life %d", n.Name, n.State, n.BrokerEpoch)
		switch {
		case n.Over():
			line += " is over"
		case n.Coming():
			line += " is coming"
		}
		line += fmt.Sprintf(", noted %d", n.Activated)
		if n.Heir != (ident.NodeID{}) {
			line += ", has an heir"
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (s *stage) names(ids []ident.NodeID) string {
	var names []string
	for _, id := range ids {
		if id == (ident.NodeID{}) {
			names = append(names, "none")
		}
		for name, n := range s.ids {
			if n == id[0] {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ",")
}
