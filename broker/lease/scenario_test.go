package lease_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/scenario"
)

// TestScenarios plays testdata/*.txt.
//
//	group exclusive|shared [lease= deliveries= backoff= inflight=]
//	begin [floor= done=3-5,7 counts=4:2 intents=6:0 start= first]
//	   a machine, at a takeover; first: at the first leader of the group
//	log k - . x        records of the log: a key, none, or a hole instead of one
//	start 5            retention
//	member a           joins, or joins again; gone a: is no member any more
//	owner a [next=b] [lost]   lost: the one before did not let go
//	same a next=b      the owner as before, with somebody next
//	take a 3 [g1:5/4]  reads what that needs, and leases: take 5 of gateway 1, who heard of 4
//	hear a g1:6/4      what came of takes; undo a 0: that did not arrive
//	ack|through|extend|nack|reject a 0 1 …    nack a 0=5s, reject a 0=why
//	commit [refused|unknown|bytes=400]    one whole; give and end [...] are its halves
//	wait 5s, letters, published 3, free, show, status 3, deadline
func TestScenarios(t *testing.T) {
	scenario.Run(t, func(t *testing.T) scenario.Player {
		s := &stage{t: t, now: time.Unix(1000, 0), index: 10}
		s.group = cluster.Group{ID: ident.GroupID{1}, Settings: cluster.GroupSettings{
			Mode: cluster.Exclusive, Lease: 30 * time.Second, MaxDeliveries: 5, Backoff: time.Second, MaxInFlight: 256,
		}}
		return s.do
	})
}

type stage struct {
	t     *testing.T
	now   time.Time
	index uint64
	group cluster.Group
	m     *lease.Machine
	log   []string
	start ident.Offset
	given []cluster.CommitOf
}

func (s *stage) fail(err error) {
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) offset(word string) ident.Offset {
	n, err := strconv.ParseInt(word, 10, 64)
	s.fail(err)
	return ident.Offset(n)
}

func (s *stage) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	s.fail(err)
	return d
}

func (s *stage) high() ident.Offset { return ident.Offset(len(s.log)) }

// see shows the machine a change of the group.
func (s *stage) see() string {
	s.index++
	s.group.Modified = s.index
	g := s.group
	g.Members, g.Owners = slices.Clone(g.Members), slices.Clone(g.Owners)
	s.group = g
	if s.m != nil && !s.m.See(s.now, &g) {
		return "over\n"
	}
	return ""
}

func (s *stage) life(member string) cluster.MemberLife {
	member, epoch, given := strings.Cut(member, "@")
	l := cluster.MemberLife{Group: s.group.ID, Member: member}
	if m, ok := s.group.Member(member); ok {
		l.Epoch = m.Epoch
	}
	if given {
		l.Epoch = ident.MemberEpoch(s.offset(epoch))
	}
	return l
}

func (s *stage) do(f []string) string {
	if out, ok := s.orders(f); ok {
		return out
	}
	return s.act(f)
}

// orders are what the coordinator and the log say.
func (s *stage) orders(f []string) (string, bool) {
	switch f[0] {
	case "group":
		s.set(f[1:])
	case "begin":
		s.begin(f[1:])
	case "log":
		s.log = append(s.log, f[1:]...)
		s.m.Moved(s.now, s.start, s.high())
	case "start":
		s.start = s.offset(f[1])
		s.m.Moved(s.now, s.start, s.high())
	case "member":
		s.group.Members = slices.DeleteFunc(slices.Clone(s.group.Members), func(m cluster.Member) bool { return m.ID == f[1] })
		s.group.Members = append(s.group.Members, cluster.Member{ID: f[1], Epoch: ident.MemberEpoch(s.index + 1)})
		slices.SortFunc(s.group.Members, func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
		over := s.see()
		return fmt.Sprintf("%s@%d\n%s", f[1], s.index, over), true
	case "gone":
		s.group.Members = slices.DeleteFunc(slices.Clone(s.group.Members), func(m cluster.Member) bool { return m.ID == f[1] })
		return s.see(), true
	case "owner", "same":
		o := cluster.Owner{Member: f[1], Epoch: ident.Assignment(s.index + 1), Released: true}
		if f[0] == "same" {
			o = s.group.Owners[0]
		}
		for _, w := range f[2:] {
			if w == "lost" {
				o.Released = false
			}
			if next, ok := strings.CutPrefix(w, "next="); ok {
				o.Next = next
			}
		}
		s.group.Owners = []cluster.Owner{o}
		return s.see(), true
	default:
		return "", false
	}
	return "", true
}

func (s *stage) set(words []string) {
	s.group.Settings.Mode = cluster.GroupMode(words[0])
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "lease":
			s.group.Settings.Lease = s.duration(value)
		case "backoff":
			s.group.Settings.Backoff = s.duration(value)
		case "deliveries":
			s.group.Settings.MaxDeliveries = int(s.offset(value))
		case "inflight":
			s.group.Settings.MaxInFlight = int(s.offset(value))
		default:
			s.t.Fatal(w)
		}
	}
	if s.m != nil {
		s.see()
	}
}

func (s *stage) begin(words []string) {
	cfg := lease.Config{Leader: 7, Alone: s.now}
	p := cluster.GroupProgress{Group: s.group.ID}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "floor":
			p.Floor = s.offset(value)
		case "start":
			s.start = s.offset(value)
		case "first":
			cfg.Alone = time.Time{}
		case "done":
			for w := range strings.SplitSeq(value, ",") {
				from, to, wide := strings.Cut(w, "-")
				if !wide {
					to = from
				}
				p.Done = append(p.Done, cluster.Span{From: s.offset(from), To: s.offset(to) + 1})
			}
		case "counts":
			for w := range strings.SplitSeq(value, ",") {
				o, n, _ := strings.Cut(w, ":")
				p.Counts = append(p.Counts, cluster.Count{Offset: s.offset(o), Deliveries: int(s.offset(n))})
			}
		case "intents":
			for w := range strings.SplitSeq(value, ",") {
				o, n, _ := strings.Cut(w, ":")
				i := cluster.Intent{Offset: s.offset(o), Sequence: int64(s.offset(n)), Deliveries: 5, Reason: "nack"}
				p.Intents, p.Sequence = append(p.Intents, i), i.Sequence+1
			}
		default:
			s.t.Fatal(w)
		}
	}
	g := s.group
	s.m = lease.Begin(s.now, cfg, &g, p, s.start, s.high())
}

// act is what members and the shell do.
func (s *stage) act(f []string) string {
	switch f[0] {
	case "wait":
		end := s.now.Add(s.duration(f[1]))
		for d := s.m.Deadline(); !d.IsZero() && !d.After(end); d = s.m.Deadline() {
			s.now = d
			s.m.Tick(d)
		}
		s.now = end
		s.m.Tick(end)
	case "take":
		return s.take(f[1], int(s.offset(f[2])), hearing(f[3:]))
	case "hear":
		s.m.Hear(s.now, s.life(f[1]), hearing(f[2:]))
	case "ack", "through", "extend", "nack", "reject":
		return s.settle(f)
	case "commit":
		return s.give(f[1:]) + s.end(f[1:])
	case "give":
		return s.give(f[1:])
	case "end":
		return s.end(f[1:])
	case "undo":
		var offsets []ident.Offset
		for _, w := range f[2:] {
			offsets = append(offsets, s.offset(w))
		}
		s.m.Undo(s.life(f[1]), offsets)
	case "letters":
		out := ""
		for _, l := range s.m.Letters() {
			out += fmt.Sprintf("letter %d of %d, after %d: %s\n", l.Sequence, l.Offset, l.Deliveries, l.Reason)
		}
		return out
	case "published":
		s.m.Published(s.offset(f[1]))
	case "free":
		a, ok := s.m.Free(s.now)
		return fmt.Sprintf("free %v %d\n", ok, a.Epoch)
	case "deadline":
		if d := s.m.Deadline(); !d.IsZero() {
			return fmt.Sprintf("in %s\n", d.Sub(s.now))
		}
		return "none\n"
	case "show":
		st := s.m.Standing(s.now)
		out := fmt.Sprintf("floor %d of %d, lag %d, in flight %d, redelivered %d, dead %d, paused %v", st.Committed, st.End, st.Lag, st.InFlight, st.Redelivered, st.Dead, st.Paused)
		if st.Expired > 0 {
			out += fmt.Sprintf(", expired %d", st.Expired)
		}
		return out + "\n"
	case "status":
		st := s.m.Status(s.now, s.offset(f[1]))
		return strings.TrimSpace(fmt.Sprintf("%s, delivery %d %s", st.State, st.Delivery, st.Member)) + "\n"
	default:
		s.t.Fatalf("unknown line %q", f)
	}
	return ""
}

// read offers so many records.
func (s *stage) read(from ident.Offset, count int) {
	var records []lease.Record
	next := max(from, s.start)
	for ; next < s.high() && len(records) < count; next++ {
		if k := s.log[next]; k != "." {
			records = append(records, lease.Record{Offset: next, Keyed: k != "-", Hash: ident.KeyHash(k), Stamp: int64(next) + 1})
		}
	}
	s.m.Offer(from, next, records)
}

// hearing reads g1:5/4.
func hearing(words []string) (h rpc.Hearing) {
	if len(words) > 0 {
		if n, err := fmt.Sscanf(words[0], "g%d:%d/%d", &h.Taker, &h.Call, &h.Heard); n != 3 {
			panic(err)
		}
	}
	return h
}

func (s *stage) take(member string, n int, of rpc.Hearing) string {
	if from, count := s.m.Wants(n); count > 0 {
		s.read(from, count)
	}
	leases, err := s.m.Take(s.now, s.life(member), n, of)
	if err != nil {
		return fault.KindOf(err).Code() + ": " + err.Error() + "\n"
	}
	out := member + ":"
	for _, l := range leases {
		out += fmt.Sprintf(" %d", l.Offset)
		if l.Delivery > 1 {
			out += fmt.Sprintf("(%d)", l.Delivery)
		}
	}
	return out + "\n"
}

func (s *stage) settle(f []string) string {
	of := rpc.SettleOf{Through: -1}
	for _, w := range f[2:] {
		word, extra, _ := strings.Cut(w, "=")
		o := s.offset(word)
		switch f[0] {
		case "ack":
			of.Ack = append(of.Ack, o)
		case "through":
			of.Through = o
		case "extend":
			of.Extend = append(of.Extend, o)
		case "reject":
			of.Reject = append(of.Reject, rpc.Reject{Offset: o, Reason: extra})
		case "nack":
			n := rpc.Nack{Offset: o, Delay: -1}
			if extra != "" {
				n.Delay = s.duration(extra)
			}
			of.Nack = append(of.Nack, n)
		}
	}
	for from, n := s.m.Unread(of.Through); n > 0; from, n = s.m.Unread(of.Through) {
		s.read(from, n)
	}
	got, err := s.m.Settle(s.now, s.life(f[1]), of)
	if err != nil {
		return fault.KindOf(err).Code() + ": " + err.Error() + "\n"
	}
	out := stale(got.Stale)
	if got.Token > 0 {
		out += fmt.Sprintf("call %d waits\n", got.Token)
	} else if out == "" {
		out = "ok\n"
	}
	return out
}

func stale(all []rpc.Stale) (out string) {
	for _, st := range all {
		out += fmt.Sprintf("stale %d: %s: %v\n", st.Offset, fault.KindOf(st.Err).Code(), st.Err)
	}
	return out
}

func (s *stage) give(f []string) (out string) {
	budget := cluster.MaxCommitBytes
	if len(f) > 0 {
		if b, ok := strings.CutPrefix(f[0], "bytes="); ok {
			budget = int(s.offset(b))
		}
	}
	s.given = s.m.Delta(budget)
	if len(s.given) == 0 {
		return "nothing to commit\n"
	}
	for _, of := range s.given {
		out += "commit"
		if of.Assignment > 0 {
			out += fmt.Sprintf(" of assignment %d", of.Assignment)
		}
		if of.Member != "" {
			out += fmt.Sprintf(" of %s@%d", of.Member, of.Epoch)
		}
		for _, d := range of.Done {
			out += fmt.Sprintf(" done %d", d.From)
			if d.To > d.From+1 {
				out += fmt.Sprintf("-%d", d.To-1)
			}
		}
		for _, c := range of.Counts {
			out += fmt.Sprintf(" count %d:%d", c.Offset, c.Deliveries)
		}
		for _, i := range of.Intents {
			out += fmt.Sprintf(" intent %d:%d", i.Offset, i.Sequence)
		}
		for _, o := range of.Published {
			out += fmt.Sprintf(" published %d", o)
		}
		if of.Start > 0 {
			out += fmt.Sprintf(" start %d", of.Start)
		}
		out += "\n"
	}
	return out
}

func (s *stage) end(f []string) (out string) {
	if len(s.given) == 0 {
		return ""
	}
	taken := make([]bool, len(s.given))
	for i := range taken {
		taken[i] = !slices.Contains(f, "refused")
	}
	s.given = nil
	if slices.Contains(f, "unknown") {
		s.m.Unknown(s.now)
	} else {
		s.m.Committed(s.now, taken)
	}
	if s.m.Over() {
		out += "over\n"
	}
	for _, a := range s.m.Answers() {
		out += fmt.Sprintf("call %d answered", a.Token)
		if a.Unknown {
			out += " unknown"
		}
		out += "\n" + stale(a.Stale)
	}
	return out
}
