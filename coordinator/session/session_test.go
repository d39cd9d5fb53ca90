package session_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/coordinator/session"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

const (
	tick     = 100 * time.Millisecond
	lasts    = time.Second
	longLast = 3 * time.Second
)

// world is a feed of groups as the coordinator would make it.
type world struct {
	s   cluster.Snapshot
	now time.Time
}

func newWorld() *world {
	return &world{now: time.Unix(1000, 0), s: cluster.Snapshot{Index: 1, Groups: map[ident.TopicID]*cluster.GroupTable{}}}
}

// change replaces a group by what comes of it; nil: it goes.
func (w *world) change(id byte, change func(*cluster.Group) *cluster.Group) {
	w.s.Index++
	groups := map[ident.TopicID]*cluster.GroupTable{}
	for k, v := range w.s.Groups {
		groups[k] = v
	}
	topic, name := ident.TopicID{id % 2}, fmt.Sprint("g", id)
	g := &cluster.Group{ID: ident.GroupID{id}, Topic: topic, Name: name, Settings: cluster.GroupSettings{Session: lasts}}
	if old := groups[topic].Get(name); old != nil {
		c := *old
		c.Members = slices.Clone(old.Members)
		g = &c
	}
	g.Modified = w.s.Index
	if g = change(g); g != nil {
		groups[topic] = groups[topic].With(g)
	} else if groups[topic] = groups[topic].Without(name); groups[topic] == nil {
		delete(groups, topic)
	}
	w.s.Groups = groups
}

func (w *world) join(id byte, member string) cluster.MemberLife {
	w.change(id, func(g *cluster.Group) *cluster.Group {
		g.Members = slices.DeleteFunc(g.Members, func(m cluster.Member) bool { return m.ID == member })
		g.Members = append(g.Members, cluster.Member{ID: member, Epoch: ident.MemberEpoch(w.s.Index)})
		slices.SortFunc(g.Members, func(a, b cluster.Member) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
		return g
	})
	return cluster.MemberLife{Group: ident.GroupID{id}, Member: member, Epoch: ident.MemberEpoch(w.s.Index)}
}

func (w *world) leave(l cluster.MemberLife) {
	w.change(l.Group[0], func(g *cluster.Group) *cluster.Group {
		g.Members = slices.DeleteFunc(g.Members, func(m cluster.Member) bool { return m.ID == l.Member })
		return g
	})
}

func (w *world) snapshot() *cluster.Snapshot {
	s := w.s
	return &s
}

// run ticks for so long and gives who was named, and after how long the first of them.
func (w *world) run(m *session.Machine, d time.Duration) (named []cluster.MemberLife, after time.Duration) {
	began := w.now
	for w.now.Sub(began) < d {
		w.now = w.now.Add(tick)
		got := m.Tick(w.now, w.snapshot())
		if len(named) == 0 && len(got) > 0 {
			after = w.now.Sub(began)
		}
		named = append(named, got...)
	}
	return named, after
}

func touch(m *session.Machine, w *world, ago time.Duration, lives ...cluster.MemberLife) []int {
	var signs []cluster.SignOfLife
	for _, l := range lives {
		signs = append(signs, cluster.SignOfLife{MemberLife: l, Ago: ago})
	}
	return m.Touch(w.now, w.now, w.snapshot(), signs).Lives
}

func TestAMemberCountsAsHeardAtItsJoinAndLivesForASession(t *testing.T) {
	w := newWorld()
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	w.run(m, time.Minute)
	l := w.join(1, "m")
	named, after := w.run(m, 2*lasts-tick)
	if !slices.Equal(named, []cluster.MemberLife{l}) || after < lasts || after > lasts+2*tick {
		t.Fatalf("%v after %s", named, after)
	}
	// It is named again, as long as it is there.
	if named, _ = w.run(m, lasts); !slices.Equal(named, []cluster.MemberLife{l}) {
		t.Fatal(named)
	}
	w.leave(l)
	if named, _ = w.run(m, time.Minute); len(named) != 0 || m.Members() != 0 {
		t.Fatal(named)
	}
}

func TestSignsCountFromWhenTheMemberWasHeard(t *testing.T) {
	w := newWorld()
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	l := w.join(1, "m")
	w.run(m, lasts-2*tick)
	if lost := touch(m, w, lasts/2, l); len(lost) != 0 {
		t.Fatal(lost)
	}
	if _, after := w.run(m, 2*lasts); after != lasts/2 {
		t.Fatalf("over after %s", after)
	}
	// A sign that is older than what is known changes nothing, one from the future neither.
	w = newWorld()
	m = session.New(session.Config{Every: tick}, w.now, w.snapshot())
	l = w.join(1, "m")
	touch(m, w, 0, l)
	touch(m, w, time.Hour, l)
	touch(m, w, -time.Hour, l)
	if _, after := w.run(m, 2*lasts); after != lasts {
		t.Fatalf("over after %s", after)
	}
}

func TestWhoTouchesForALifeThatIsOverIsTold(t *testing.T) {
	w := newWorld()
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	former := w.join(1, "m")
	left := w.join(1, "n")
	w.leave(left)
	l := w.join(1, "m")
	unknown := cluster.MemberLife{Group: ident.GroupID{9}, Member: "m", Epoch: 2}
	coming := cluster.MemberLife{Group: ident.GroupID{9}, Member: "m", Epoch: ident.MemberEpoch(w.s.Index + 1)} // its join is not on the feed yet
	if lost := touch(m, w, 0, former, l, left, unknown, coming); !slices.Equal(lost, []int{0, 2, 3}) {
		t.Fatal(lost)
	}
	w.change(1, func(*cluster.Group) *cluster.Group { return nil })
	if lost := touch(m, w, 0, l); !slices.Equal(lost, []int{0}) || m.Members() != 0 {
		t.Fatal(lost)
	}
}

// A coordinator that was stopped for a while judges nobody for what it could not hear.
func TestAStallIsNobodysFault(t *testing.T) {
	w := newWorld()
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	l, silent := w.join(1, "m"), w.join(2, "s")
	w.run(m, lasts/2)
	touch(m, w, 0, l)
	w.now = w.now.Add(time.Hour)
	if named := m.Tick(w.now, w.snapshot()); len(named) != 0 {
		t.Fatal(named)
	}
	touch(m, w, 0, l)
	named, after := w.run(m, lasts-tick)
	if !slices.Equal(named, []cluster.MemberLife{silent}) || after < lasts/2-3*tick {
		t.Fatalf("%v after %s", named, after)
	}
}

func TestANewLeaderGivesEverybodyASession(t *testing.T) {
	w := newWorld()
	var all []cluster.MemberLife
	for i := range byte(5) {
		all = append(all, w.join(i+1, "m"))
	}
	w.now = w.now.Add(time.Hour)
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	if m.Members() != 5 {
		t.Fatal(m.Members())
	}
	named, after := w.run(m, lasts+2*tick)
	if !slices.Equal(named, all) || after != lasts {
		t.Fatalf("%v after %s", named, after)
	}
}

func TestAShorterSessionHoldsAtOnce(t *testing.T) {
	w := newWorld()
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	set := func(d time.Duration) {
		w.change(1, func(g *cluster.Group) *cluster.Group { g.Settings.Session = d; return g })
	}
	l := w.join(1, "m")
	set(longLast)
	if named, _ := w.run(m, 2*lasts); len(named) != 0 {
		t.Fatal(named)
	}
	set(lasts)
	if named, after := w.run(m, 5*tick); !slices.Equal(named, []cluster.MemberLife{l}) || after != tick {
		t.Fatalf("%v after %s", named, after)
	}
}

// Nobody is named who was heard within a session, counted without the time for which the
// machine was late itself; whoever was not is named with the next tick.
func TestTheSilentAreNamedAndNobodyElse(t *testing.T) {
	ended, kept, stalls := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
		type life struct {
			cluster.MemberLife
			heard time.Time
		}
		lives := map[string]*life{}
		key := func(l cluster.MemberLife) string { return fmt.Sprint(l.Group[0], l.Member) }
		session := func(id ident.GroupID) time.Duration {
			g, _ := w.snapshot().Group(ident.TopicID{id[0] % 2}, fmt.Sprint("g", id[0]))
			return g.Settings.Session
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			id, member := byte(rapid.IntRange(1, 4).Draw(t, "group")), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "member")
			at := fmt.Sprint(id, member)
			l := lives[at]
			switch rapid.SampledFrom([]string{"join", "touch", "touch", "leave", "setting", "delete", "tick", "tick", "tick", "tick", "stall"}).Draw(t, "what") {
			case "join":
				lives[at] = &life{w.join(id, member), w.now}
				m.Touch(w.now, w.now, w.snapshot(), nil) // it sees the join
			case "touch":
				if l != nil {
					ago := time.Duration(rapid.IntRange(0, 4).Draw(t, "ago")) * tick
					if lost := touch(m, w, ago, l.MemberLife); len(lost) != 0 {
						t.Fatalf("%v is lost", l.MemberLife)
					}
					if heard := w.now.Add(-ago); heard.After(l.heard) {
						l.heard = heard
					}
				}
			case "leave":
				if l != nil {
					w.leave(l.MemberLife)
					delete(lives, at)
				}
			case "setting":
				if l != nil {
					w.change(id, func(g *cluster.Group) *cluster.Group {
						g.Settings.Session = rapid.SampledFrom([]time.Duration{lasts, longLast}).Draw(t, "session")
						return g
					})
				}
			case "delete":
				if l != nil {
					w.change(id, func(*cluster.Group) *cluster.Group { return nil })
					for k, o := range lives {
						if o.Group[0] == id {
							delete(lives, k)
						}
					}
				}
			case "stall":
				late := time.Duration(rapid.IntRange(2, 40).Draw(t, "late")) * tick
				w.now = w.now.Add(tick + late)
				if named := m.Tick(w.now, w.snapshot()); len(named) != 0 {
					t.Fatalf("%v named by one that was late itself", named)
				}
				for _, o := range lives {
					if o.heard = o.heard.Add(late); o.heard.After(w.now) {
						o.heard = w.now
					}
				}
				stalls++
			case "tick":
				w.now = w.now.Add(tick)
				named := m.Tick(w.now, w.snapshot())
				for _, n := range named {
					o := lives[key(n)]
					if o == nil || o.MemberLife != n || w.now.Sub(o.heard) < session(n.Group) {
						t.Fatalf("%v is named, heard %v", n, o)
					}
					w.leave(n)
					delete(lives, key(n))
					ended++
				}
				for _, o := range lives {
					if w.now.Sub(o.heard) >= session(o.Group) {
						t.Fatalf("%v was heard %s ago and is not named", o.MemberLife, w.now.Sub(o.heard))
					}
					kept++
				}
			}
		}
		m.Touch(w.now, w.now, w.snapshot(), nil)
		if m.Members() != len(lives) {
			t.Fatalf("it knows %d members of %d", m.Members(), len(lives))
		}
	})
	t.Logf("%d sessions ended, %d times one went on, %d stalls", ended, kept, stalls)
	if ended == 0 || kept == 0 || stalls == 0 {
		t.Fatal("the states that this is about were not reached")
	}
}

// BenchmarkTick is with 100,000 members in 10,000 groups that are all heard.
func BenchmarkTick(b *testing.B) {
	w := newWorld()
	var groups []*cluster.Group
	var signs []cluster.SignOfLife
	for i := range 10_000 {
		g := &cluster.Group{ID: ident.GroupID{byte(i), byte(i >> 8), 1}, Name: fmt.Sprint("g", i), Modified: 2, Settings: cluster.GroupSettings{Session: cluster.DefaultSession}}
		for k := range 10 {
			g.Members = append(g.Members, cluster.Member{ID: fmt.Sprint("m", k), Epoch: 2})
			signs = append(signs, cluster.SignOfLife{MemberLife: cluster.MemberLife{Group: g.ID, Member: fmt.Sprint("m", k), Epoch: 2}})
		}
		groups = append(groups, g)
	}
	w.s.Groups[ident.TopicID{}] = w.s.Groups[ident.TopicID{}].With(groups...)
	w.s.Index = 2
	m := session.New(session.Config{Every: tick}, w.now, w.snapshot())
	b.Run("tick", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m.Touch(w.now, w.now, w.snapshot(), signs)
			w.now = w.now.Add(tick)
			b.StartTimer()
			m.Tick(w.now, w.snapshot())
		}
	})
	b.Run("touch", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m.Touch(w.now, w.now, w.snapshot(), signs[i%len(signs):i%len(signs)+1])
		}
	})
}
