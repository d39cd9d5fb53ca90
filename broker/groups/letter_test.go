package groups

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// letters reads a dead-letter topic.
func (s *stage) letters(t *testing.T, name string) (all []record.Record) {
	t.Helper()
	topic, ok := s.log.Snapshot().Topics[name]
	if !ok {
		return nil
	}
	for i := range topic.Partitions {
		got, err := s.log.Read(t.Context(), rpc.Read{Partition: topic.Ref(ident.Index(i)), MaxBytes: 10 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for rest := got.Batches; len(rest) > 0; {
			b, next, err := record.Cut(rest)
			if err != nil {
				t.Fatal(err)
			}
			for it := b.Entries(); it.Next(); {
				r := it.Entry().Record
				r.Headers = slices.Clone(r.Headers)
				all = append(all, r)
			}
			rest = next
		}
	}
	return all
}

func header(r record.Record, name string) string {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// rejects has a member reject records of partition 0.
func (n *node) rejects(t *testing.T, ref ident.Partition, by cluster.MemberLife, offsets ...ident.Offset) {
	t.Helper()
	of := rpc.SettleOf{Partition: ref, Through: -1}
	for _, o := range offsets {
		of.Reject = append(of.Reject, rpc.Reject{Offset: o, Reason: "bad"})
	}
	n.settles(t, by, of)
}

func TestADeadRecordGoesToItsTopicWithAllItHas(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.AppendRecord(ref, &record.Record{
			ContentType: "x/y", Key: []byte("k"), Value: []byte("poison"), Headers: []record.HeaderField{{Name: "a", Value: "1"}, {Name: "Tidewire-Dead-Reason", Value: "older"}},
			Idempotency: &record.Idempotency{Key: "i"},
		})
		s.log.Append(ref, "b")
		m := s.join(g, "m1")
		for i := range 3 { // fails as often as it may
			b.takes(t, ref, m, 1, time.Minute, fmt.Sprintf("0/%d", i+1))
			b.settles(t, m, rpc.SettleOf{Partition: ref, Through: -1, Nack: []rpc.Nack{{Offset: 0, Delay: 0}}})
		}
		b.takes(t, ref, m, 1, 0, "1/1")
		time.Sleep(time.Second)
		all := s.letters(t, "billing.dlq")
		if len(all) != 1 {
			t.Fatalf("%d letters", len(all))
		}
		r := all[0]
		want := map[string]string{
			"a": "1", "Tidewire-Dead-Topic": "orders", "Tidewire-Dead-Partition": "0", "Tidewire-Dead-Offset": "0", "Tidewire-Dead-Group": "billing", "Tidewire-Dead-Deliveries": "3",
		}
		for name, value := range want {
			if got := header(r, name); got != value {
				t.Errorf("%s is %q", name, got)
			}
		}
		if len(r.Headers) != 7 || !strings.Contains(header(r, "Tidewire-Dead-Reason"), "nack") {
			t.Errorf("%v", r.Headers)
		}
		if string(r.Key) != "k" || string(r.Value) != "poison" || r.ContentType != "x/y" || r.Idempotency != nil || r.Producer != ident.SystemProducer(g.ID, 0) || r.Sequence != 0 {
			t.Errorf("%+v", r)
		}
		if floor, done := s.tally(g); floor != 1 || !maps.Equal(done, map[ident.Offset]string{0: "dead"}) {
			t.Errorf("floor %d, %v", floor, done)
		}
		dead, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: 0})
		if err != nil || dead[0].State != rpc.DeadState {
			t.Errorf("%+v, %v", dead, err)
		}
	})
}

// A letter that cannot be appended is tried until it can, and holds up nobody else.
func TestALetterThatCannotBeAppended(t *testing.T) {
	for name, why := range map[string]error{
		"for the moment": fault.New(fault.DiskFull, "full"),
		"as it is":       fault.New(fault.MessageTooLarge, "large"),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				topic := s.topic("orders", 1)
				ref, b := topic.Ref(0), s.nodes[n1]
				g := s.group(topic, "billing", nil)
				s.log.Append(ref, "a", "b", "a", "c")
				m := s.join(g, "m1")
				b.takes(t, ref, m, 2, 0, "0/1", "1/1")
				s.set(func(s *stage) { s.refuse = why })
				b.rejects(t, ref, m, 0) // answered: it will be dead
				time.Sleep(time.Minute)
				b.acks(t, ref, m, 1)
				b.takes(t, ref, m, 2, 0, "2/1", "3/1")
				b.acks(t, ref, m, 2, 3)
				if floor, _ := s.tally(g); floor != 0 {
					t.Errorf("floor %d", floor)
				}
				s.set(func(s *stage) { s.refuse = nil })
				time.Sleep(time.Minute)
				if floor, done := s.tally(g); floor != 4 || done[0] != "dead" || len(s.letters(t, "billing.dlq")) != 1 {
					t.Errorf("floor %d, %v", floor, done)
				}
			})
		})
	}
}

// A topic that cannot be made is told of, and the record waits for another name.
func TestADeadLetterTopicOfANameThatIsNotAllowed(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.DeadLetter = "_mine" })
		s.log.Append(ref, "a", "b")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 1, 0, "0/1")
		b.rejects(t, ref, m, 0)
		time.Sleep(time.Minute)
		b.takes(t, ref, m, 1, 0, "1/1")
		s.alter(g, func(g *cluster.Group) { g.Settings.DeadLetter = "mine" })
		time.Sleep(time.Minute)
		if _, done := s.tally(g); done[0] != "dead" || len(s.letters(t, "mine")) != 1 {
			t.Errorf("%v", done)
		}
	})
}

// What a leader left on its way the next one brings there, once and by itself: the group has
// no members, and nobody asks for it.
func TestLettersOutliveALeader(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c")
		m := s.join(g, "m1")
		s.nodes[n1].takes(t, ref, m, 3, 0, "0/1", "1/1", "2/1")
		s.set(func(s *stage) { s.refuse = fault.New(fault.DiskFull, "full") })
		s.nodes[n1].rejects(t, ref, m, 0, 2)
		s.lapse(g, "m1", "")
		s.set(func(s *stage) { s.down = true })
		s.lead(ref, n2)
		time.Sleep(10 * time.Second)
		s.set(func(s *stage) { s.refuse, s.down = nil, false })
		time.Sleep(time.Minute)
		all, err := s.nodes[n2].Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{g.ID}, Partitions: []ident.Partition{ref}})
		if err != nil || len(all) != 1 || all[0].Dead != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		if _, done := s.tally(g); !maps.Equal(done, map[ident.Offset]string{0: "dead", 2: "dead"}) {
			t.Errorf("%v", done)
		}
		if n := len(s.letters(t, "billing.dlq")); n != 2 {
			t.Errorf("%d letters", n)
		}
		if p, _ := s.nodes[n2].post(ref); len(p.atWork()) > 0 {
			t.Errorf("%d units", len(p.atWork()))
		}
	})
}

// A new leader asks once, whatever number of groups has no members, and only of the groups
// that have letters left it reads anything.
func TestManyIdleGroupsCostANewLeaderOneQuestion(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		s.log.Append(ref, "a")
		const groups, dying = 2000, cluster.MaxProgress + 40
		s.set(func(s *stage) { s.refuse = fault.New(fault.DiskFull, "full") })
		var all []*cluster.Group
		for i := range groups {
			g := s.group(topic, fmt.Sprintf("g%04d", i), func(s *cluster.GroupSettings) { s.DeadLetter = "dead" })
			if all = append(all, g); i < dying {
				s.set(func(s *stage) {
					of := s.progress[g.ID][0]
					of.intents, of.sequence = []cluster.Intent{{Offset: 0, Deliveries: 1, Reason: "bad"}}, 1
				})
			}
		}
		s.set(func(s *stage) { s.refuse, s.loads = nil, 0 })
		s.lead(ref, n2)
		time.Sleep(time.Minute)
		for i, g := range all {
			_, done := s.tally(g)
			if (done[0] == "dead") != (i < dying) {
				t.Fatalf("%s: %v", g.Name, done)
			}
		}
		s.set(func(s *stage) {
			if s.loads > 8 {
				t.Errorf("%d questions", s.loads)
			}
		})
		if n := len(s.letters(t, "dead")); n != dying {
			t.Errorf("%d letters", n)
		}
		if p, _ := s.nodes[n2].post(ref); len(p.atWork()) > 0 {
			t.Errorf("%d units", len(p.atWork()))
		}
	})
}

// Groups are found by their ids, as they come, change and go.
func TestGroupsAreFoundByTheirIDs(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		b := s.nodes[n1]
		now := map[string]ident.GroupID{}
		var gone []ident.GroupID
		for i := range 2000 {
			name := fmt.Sprintf("g%d", i%50)
			if id, there := now[name]; there {
				gone = append(gone, id)
				s.mu.Lock()
				s.changeLocked(func(snap *cluster.Snapshot) { snap.Groups[topic.ID] = snap.Groups[topic.ID].Without(name) })
				s.mu.Unlock()
			}
			g := &cluster.Group{ID: ident.GroupID(uuid.New()), Topic: topic.ID, Name: name}
			s.mu.Lock()
			s.changeLocked(func(snap *cluster.Snapshot) {
				g.Modified = snap.Index
				snap.Groups[topic.ID] = snap.Groups[topic.ID].With(g)
			})
			s.mu.Unlock()
			now[name] = g.ID
		}
		ids := slices.Collect(maps.Values(now))
		found := b.named(topic.ID, slices.Concat(ids, gone, ids))
		if len(found) != len(ids) {
			t.Fatalf("%d of %d are found", len(found), len(ids))
		}
		for _, g := range found {
			if now[g.Name] != g.ID {
				t.Errorf("%s is not there any more", g.Name)
			}
		}
		if n := len(b.names[topic.ID]); n > 2*len(now)+staleNames {
			t.Errorf("%d names of %d groups", n, len(now))
		}
	})
}

// A letter of a key goes where records of that key are.
func TestALetterKeepsToThePartitionOfItsKey(t *testing.T) {
	half := ident.HashSpace / 2
	topic := &cluster.Topic{Partitions: []cluster.Partition{
		{Index: 0, Range: ident.HashRange{Lo: 0, Hi: half}, State: cluster.Open, Leader: n1},
		{Index: 1, Range: ident.HashRange{Lo: half, Hi: ident.HashSpace}, State: cluster.Open, Leader: n1},
		{Index: 2, Range: ident.FullRange, State: cluster.Sealed, Leader: n1},
	}}
	for i := range 100 {
		key := fmt.Appendf(nil, "k%d", i)
		p, err := placeOf(topic, &record.Record{Key: key}, 1)
		if err != nil || !p.Range.Contains(ident.KeyHash(key)) || p.State != cluster.Open {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	for intended, want := range map[ident.Index]ident.Index{0: 0, 1: 1, 2: 0, 7: 0} {
		if p, err := placeOf(topic, &record.Record{}, intended); err != nil || p.Index != want {
			t.Errorf("%+v, %v", p, err)
		}
	}
	topic.Partitions[1].Leader = ident.NodeID{}
	if _, err := placeOf(topic, &record.Record{}, 1); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
	topic.Partitions = topic.Partitions[2:]
	if _, err := placeOf(topic, &record.Record{Key: []byte("k")}, 0); !fault.Is(err, fault.PartitionNotFound) {
		t.Error(err)
	}
}

// A record that retention took before its letter was written leaves an empty one.
func TestALetterOfARecordThatIsGone(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a")
		s.log.Append(ref, "b")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 1, 0, "0/1")
		s.set(func(s *stage) { s.refuse = fault.New(fault.NotEnoughReplicas, "one is away") })
		b.rejects(t, ref, m, 0)
		s.log.Retain(ref, 1)
		s.set(func(s *stage) { s.refuse = nil })
		time.Sleep(time.Minute)
		all := s.letters(t, "billing.dlq")
		if len(all) != 1 || len(all[0].Value) > 0 || header(all[0], "Tidewire-Dead-Offset") != "0" {
			t.Errorf("%+v", all)
		}
		b.takes(t, ref, m, 1, 0, "1/1")
	})
}
