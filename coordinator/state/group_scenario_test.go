package state_test

import (
	"fmt"
	"strings"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// groupLine reads a line about groups into a command, or performs it. Groups are named by
// topic and name: orders/billing.
func (s *stage) groupLine(f []string, c *state.Command) (out string, done bool) {
	switch f[0] {
	case "group":
		return s.showGroup(f[1]), true
	case "progress":
		return s.showProgress(f[1]), true
	case "form": // form orders/billing mode=shared at=0:5,1:7 lease=1s
		topic, name, _ := strings.Cut(f[1], "/")
		t, ok := s.m.Snapshot().Topic(topic)
		if !ok {
			t = &cluster.Topic{ID: ident.TopicID{99}}
		}
		r := &cluster.GroupRegister{ID: ident.GroupID{3, byte(s.index + 1)}, Topic: t.ID, Name: name}
		for _, p := range t.Partitions {
			r.Starts = append(r.Starts, cluster.Position{Partition: p.Index})
		}
		rest := f[2:]
		if len(rest) > 0 && strings.HasPrefix(rest[0], "at=") {
			r.Starts, rest = s.positions(rest[0][len("at="):]), rest[1:]
		}
		r.Patch = s.groupPatch(rest)
		c.GroupRegister = r
	case "reform":
		c.GroupAlter = &cluster.GroupAlter{Group: s.group(f[1]).ID, Patch: s.groupPatch(f[2:])}
	case "forget":
		c.GroupDelete = &cluster.GroupDelete{Group: s.group(f[1]).ID}
	case "reset": // reset orders/billing 0:5,1:7 force
		c.GroupReset = &cluster.GroupReset{Group: s.group(f[1]).ID, Force: len(f) > 3}
		if len(f) > 2 {
			c.GroupReset.Starts = s.positions(f[2])
		}
	case "join":
		c.MemberJoin = &cluster.MemberJoin{Group: s.group(f[1]).ID, Member: f[2]}
	case "leave":
		c.MemberLeave = &cluster.MemberLeave{MemberLife: s.memberLife(f[1], f[2])}
	case "lapse": // lapse orders/billing m1 m2
		c.MemberLapse = &cluster.MemberLapse{}
		for _, member := range f[2:] {
			c.MemberLapse.Lives = append(c.MemberLapse.Lives, s.memberLife(f[1], member))
		}
	case "release", "drained": // release orders/billing 0 1@12 1@12!14
		c.Release = &cluster.Release{}
		g := s.group(f[1])
		for _, word := range f[2:] {
			number, epoch, given := strings.Cut(word, "@")
			of := cluster.ReleaseOf{Group: g.ID, Partition: ident.Index(s.number(number)), Drained: f[0] == "drained"}
			if o := g.Owner(of.Partition); o != nil {
				of.Epoch, of.Notice = o.Epoch, o.Notice
			}
			if given {
				epoch, notice, given := strings.Cut(epoch, "!")
				of.Epoch = ident.Assignment(s.number(epoch))
				if given {
					of.Notice = uint64(s.number(notice))
				}
			}
			c.Release.Of = append(c.Release.Of, of)
		}
	case "clamp": // clamp a orders/0:50 orders/1:7
		c.Clamp = &cluster.Clamp{Leader: s.life(f[1])}
		for _, word := range f[2:] {
			name, end, _ := strings.Cut(word, ":")
			t, i, _ := strings.Cut(name, "/")
			of := cluster.ClampOf{Partition: ident.Partition{Index: ident.Index(s.number(i))}, End: ident.Offset(s.number(end))}
			if topic, ok := s.m.Snapshot().Topic(t); ok {
				of.Partition.Topic = topic.ID
				if p, ok := topic.Partition(of.Partition.Index); ok {
					of.Epoch = p.LeaderEpoch
				}
			}
			c.Clamp.Of = append(c.Clamp.Of, of)
		}
	case "commit": // commit a orders/billing/0 by=m1 done=5-7,9
		c.Commit = &cluster.Commit{Leader: s.life(f[1])}
		for ref, options := range s.parts(f[2:]) {
			c.Commit.Of = append(c.Commit.Of, s.commitOf(ref, options))
		}
	default:
		s.t.Fatalf("unknown line %q", f)
	}
	return "", false
}

// group finds orders/billing; one that is not there has an id of its own.
func (s *stage) group(ref string) *cluster.Group {
	topic, name, _ := strings.Cut(ref, "/")
	if t, ok := s.m.Snapshot().Topic(topic); ok {
		if g, ok := s.m.Snapshot().Group(t.ID, name); ok {
			return g
		}
	}
	return &cluster.Group{ID: ident.GroupID{99}}
}

// memberLife is a member's present one, or, written m@7, another.
func (s *stage) memberLife(ref, member string) cluster.MemberLife {
	id, epoch, given := strings.Cut(member, "@")
	g := s.group(ref)
	l := cluster.MemberLife{Group: g.ID, Member: id}
	if given {
		l.Epoch = ident.MemberEpoch(s.number(epoch))
	} else if m, ok := g.Member(id); ok {
		l.Epoch = m.Epoch
	}
	return l
}

func (s *stage) positions(words string) (all []cluster.Position) {
	for word := range strings.FieldsFuncSeq(words, isComma) {
		p, o, _ := strings.Cut(word, ":")
		all = append(all, cluster.Position{Partition: ident.Index(s.number(p)), Offset: ident.Offset(s.number(o))})
	}
	return all
}

func (s *stage) groupPatch(options []string) (p cluster.GroupPatch) {
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		switch k {
		case "mode":
			p.Mode = new(cluster.GroupMode(v))
		case "lease":
			p.Lease = new(s.duration(v))
		case "session":
			p.Session = new(s.duration(v))
		case "max_deliveries":
			p.MaxDeliveries = new(s.number(v))
		case "backoff":
			p.Backoff = new(s.duration(v))
		case "dead_letter":
			p.DeadLetter = &v
		case "max_in_flight":
			p.MaxInFlight = new(s.number(v))
		default:
			s.t.Fatalf("unknown option %q", o)
		}
	}
	return p
}

// commitOf reads a part of a commit: orders/billing/0 and what it says. by= names the
// member whose acknowledgements they are.
func (s *stage) commitOf(ref string, options map[string]string) cluster.CommitOf {
	at := strings.LastIndex(ref, "/")
	g := s.group(ref[:at])
	topic, _, _ := strings.Cut(ref, "/")
	_, p := s.partition(topic + ref[at:])
	c := cluster.CommitOf{Group: g.ID, Partition: p.Index, Leader: p.LeaderEpoch, Reset: g.Reset}
	for k, v := range options {
		switch k {
		case "by":
			if g.Settings.Mode == cluster.Shared {
				l := s.memberLife(ref[:at], v)
				c.Member, c.Epoch = l.Member, l.Epoch
			} else if o := g.Owner(p.Index); o != nil && o.Member == v {
				c.Assignment = o.Epoch
			} else {
				c.Assignment = 1
			}
		case "assignment":
			c.Assignment = ident.Assignment(s.number(v))
		case "leader":
			c.Leader = ident.Epoch(s.number(v))
		case "reset":
			c.Reset = uint64(s.number(v))
		case "done":
			for word := range strings.FieldsFuncSeq(v, isComma) {
				from, to, many := strings.Cut(word, "..")
				span := cluster.Span{From: ident.Offset(s.number(from))}
				if span.To = span.From + 1; many {
					span.To = ident.Offset(s.number(to))
				}
				c.Done = append(c.Done, span)
			}
		case "counts":
			for word := range strings.FieldsFuncSeq(v, isComma) {
				o, n, _ := strings.Cut(word, "x")
				c.Counts = append(c.Counts, cluster.Count{Offset: ident.Offset(s.number(o)), Deliveries: s.number(n)})
			}
		case "intents": // 7#0: offset 7 under number 0
			for word := range strings.FieldsFuncSeq(v, isComma) {
				o, n, _ := strings.Cut(word, "#")
				c.Intents = append(c.Intents, cluster.Intent{Offset: ident.Offset(s.number(o)), Sequence: int64(s.number(n)), Deliveries: 5, Reason: "often"})
			}
		case "published":
			for word := range strings.FieldsFuncSeq(v, isComma) {
				c.Published = append(c.Published, ident.Offset(s.number(word)))
			}
		case "start":
			c.Start = ident.Offset(s.number(v))
		default:
			s.t.Fatalf("unknown option %q", k)
		}
	}
	return c
}

func (s *stage) showGroup(ref string) string {
	g := s.group(ref)
	if g.Name == "" {
		return "no " + ref + "\n"
	}
	x := g.Settings
	out := fmt.Sprintf("%s: %s, lease %s, session %s, max_deliveries %d, backoff %s, dead_letter %s, max_in_flight %d, reset %d\n",
		g.Name, x.Mode, x.Lease, x.Session, x.MaxDeliveries, x.Backoff, x.DeadLetter, x.MaxInFlight, g.Reset)
	for _, m := range g.Members {
		out += fmt.Sprintf("  %s epoch %d, since %d\n", m.ID, m.Epoch, m.Since.Unix())
	}
	for _, o := range g.Owners {
		out += fmt.Sprintf("  %d %s epoch %d", o.Partition, orNobody(o.Member), o.Epoch)
		if o.Next != "" {
			out += fmt.Sprintf(", next %s since %d", o.Next, o.Notice)
		}
		if !o.Released {
			out += ", not released before"
		}
		out += "\n"
	}
	return out
}

func orNobody(member string) string {
	if member == "" {
		return "nobody"
	}
	return member
}

func (s *stage) showProgress(ref string) string {
	g := s.group(ref)
	topic, _, _ := strings.Cut(ref, "/")
	t, _ := s.m.Snapshot().Topic(topic)
	out := ""
	for _, part := range t.Partitions {
		got := s.m.Progress(t.Ref(part.Index), []ident.GroupID{g.ID})
		if len(got) == 0 {
			return "none\n"
		}
		p := got[0]
		out += fmt.Sprintf("  %d floor %d", p.Partition, p.Floor)
		if p.Lost > 0 {
			out += fmt.Sprintf(", %d lost", p.Lost)
		}
		for _, list := range []struct {
			word  string
			spans []cluster.Span
		}{{"done", p.Done}, {"dead", p.Dead}, {"skipped", p.Skipped}, {"expired", p.Expired}} {
			for k, span := range list.spans {
				if k == 0 {
					out += " " + list.word
				}
				out += fmt.Sprintf(" %d..%d", span.From, span.To)
			}
		}
		for _, c := range p.Counts {
			out += fmt.Sprintf(", %d for the %d. time", c.Offset, c.Deliveries)
		}
		for _, i := range p.Intents {
			out += fmt.Sprintf(", %d dies as number %d", i.Offset, i.Sequence)
		}
		out += "\n"
	}
	return out
}
