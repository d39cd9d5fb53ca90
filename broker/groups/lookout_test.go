package groups

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// look waits until a lookout is told to look, and looks; nothing comes after a minute.
func look(t *testing.T, l rpc.Lookout, poke <-chan struct{}) (taken rpc.Taken, said bool) {
	t.Helper()
	for wait := time.After(time.Minute); !said; {
		select {
		case <-poke:
			taken, said = l.Look()
		case <-wait:
			return taken, false
		}
	}
	return taken, said
}

func TestALookoutIsToldOfWhatComes(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.Mode = cluster.Shared })
		m := s.join(g, "m")
		synctest.Wait()
		poke := make(chan struct{}, 1)
		take := rpc.Take{MemberLife: m, Partitions: []ident.Partition{topic.Ref(0)}, Wait: time.Second}
		for range 3 {
			l := s.nodes[n1].Lookout(take, poke)
			if l == nil {
				t.Fatal("the units are there, and a lookout has to wait")
			}
			if taken, said := l.Look(); said {
				t.Fatalf("there is nothing, and a lookout says %+v", taken)
			}
			synctest.Wait() // the watch has an eye on the log
			s.log.Append(ref, "")
			taken, said := look(t, l, poke)
			if !said || !taken.More {
				t.Fatalf("a record came, and a lookout says %v, %+v", said, taken)
			}
			l.Leave()
			l.Leave()
			got, err := s.nodes[n1].Take(t.Context(), rpc.Take{MemberLife: m, Partitions: []ident.Partition{topic.Ref(0)}, Limit: 10, MaxBytes: 1 << 20})
			if err != nil || len(got.Of[0].Leases) != 1 {
				t.Fatalf("%v, %+v", err, got)
			}
		}
		u, err := s.nodes[n1].unit(ref, m)
		if err != nil {
			t.Fatal(err)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if n := u.waited.Load(); n != 0 || len(u.takers) > 0 {
			t.Errorf("%d takers are left, and %d counted", len(u.takers), n)
		}
	})
}

// Who comes when nobody has waited for long is told of records as well: nobody looks out then.
func TestALookoutAfterALongSilence(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.Mode = cluster.Shared })
		m := s.join(g, "m")
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			poke := make(chan struct{}, 1)
			l := s.nodes[n1].Lookout(rpc.Take{MemberLife: m, Partitions: []ident.Partition{topic.Ref(0)}}, poke)
			if _, said := l.Look(); said {
				t.Fatal("there is nothing")
			}
			s.log.Append(topic.Ref(0), "")
			if taken, said := look(t, l, poke); !said || !taken.More {
				t.Fatalf("a record came, and a lookout says %v, %+v", said, taken)
			}
			l.Leave()
			leases, err := s.nodes[n1].take(t, topic.Ref(0), m, 10, 0)
			if err != nil || len(leases) != 1 {
				t.Fatal(err, leases)
			}
			s.nodes[n1].acks(t, topic.Ref(0), m, leases[0].Offset)
		}
	})
}

func TestALookoutSaysThatItsMemberIsOut(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.Mode = cluster.Shared })
		m := s.join(g, "m")
		s.join(g, "other")
		synctest.Wait()
		poke := make(chan struct{}, 1)
		l := s.nodes[n1].Lookout(rpc.Take{MemberLife: m, Partitions: []ident.Partition{topic.Ref(0)}}, poke)
		defer l.Leave()
		if _, said := l.Look(); said {
			t.Fatal("there is nothing")
		}
		s.lapse(g, "m", "other")
		if taken, said := look(t, l, poke); !said || taken.More || taken.Of[0].Err == nil {
			t.Errorf("a member has left, and its lookout says %v, %+v", said, taken)
		}
	})
}
