package state_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// groupFault says what is wrong with a group as it is shown.
func groupFault(s *cluster.Snapshot, g *cluster.Group) string {
	t := s.ByID[g.Topic]
	switch {
	case t == nil:
		return "its topic is not there"
	case s.Groups[g.Topic].Get(g.Name) != g:
		return "it is filed wrongly"
	case g.Modified == 0 || g.Modified > s.Index:
		return "it was modified at an index that cannot be"
	case !slices.IsSortedFunc(g.Members, func(a, b cluster.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}):
		return "members out of order, or twice"
	case (len(g.Owners) > 0) != (g.Settings.Mode == cluster.Exclusive):
		return "owners in shared mode, or none in the other"
	case len(g.Owners) > 0 && len(g.Owners) != len(t.Partitions):
		return "more or fewer owners than partitions"
	}
	due := map[string]int{}
	for i, o := range g.Owners {
		_, owns := g.Member(o.Member)
		_, waits := g.Member(o.Next)
		switch {
		case o.Partition != t.Partitions[i].Index:
			return "owners out of order"
		case len(g.Members) > 0 && !owns || len(g.Members) == 0 && o.Member != "":
			return "a partition belongs to nobody, or to one who is not there"
		case o.Next != "" && (!waits || o.Next == o.Member):
			return "a partition goes to one who is not there, or has it"
		case (o.Next != "") != (o.Notice != 0) || o.Notice > s.Index:
			return "a notice that cannot be"
		case o.Epoch == 0 || uint64(o.Epoch) > s.Index:
			return "an assignment epoch that cannot be"
		case owns && o.Next == "":
			due[o.Member]++
		case owns:
			due[o.Next]++
		}
	}
	for _, m := range g.Members {
		if m.Epoch == 0 || uint64(m.Epoch) > s.Index {
			return "a member epoch that cannot be"
		}
		if least := len(g.Owners) / len(g.Members); due[m.ID] < least || due[m.ID] > least+1 {
			return "partitions are spread unevenly"
		}
	}
	return ""
}

// groupStep says what is wrong with how a group changed.
func groupStep(index uint64, c *state.Command, was, now *cluster.Group) string {
	if now.Reset < was.Reset || now.Created != was.Created || now.Settings.Mode != was.Settings.Mode {
		return "a reset was undone, or it is another group"
	}
	for i, o := range now.Owners {
		b := was.Owners[i]
		changed := b.Member != o.Member
		_, stays := now.Member(b.Member)
		switch {
		case o.Epoch < b.Epoch, o.Epoch != b.Epoch && uint64(o.Epoch) != index:
			return "an assignment epoch fell, or is of no entry"
		case changed && o.Epoch == b.Epoch:
			return "two owners in one assignment epoch"
		case o.Notice != b.Notice && o.Notice != 0 && (o.Notice != index || b.Notice != 0 && !changed):
			return "a notice was given anew, and nobody took it back"
		case changed && stays && c.Release == nil:
			return "a partition was taken from an owner who had not let go"
		case changed && stays && o.Member != b.Next:
			return "a partition was released to somebody else than told"
		case o.Released && !b.Released && c.Release == nil:
			return "silence was taken for a release"
		case changed && !stays && b.Member != "" && c.MemberLapse != nil && o.Released:
			return "one who fell silent counts as having let go"
		}
	}
	return ""
}

// progressStep says what is wrong with how far a group has come.
func progressStep(was, now *cluster.GroupProgress) string {
	switch {
	case now.Sequence < was.Sequence:
		return "a number of a dead letter was given back"
	case now.Reset == was.Reset && now.Floor < was.Floor:
		return "a floor fell without a reset"
	case now.Reset == was.Reset && now.Start != was.Start:
		return "a start moved without a reset"
	}
	return ""
}

func progressOf(m *state.Machine, g *cluster.Group, p ident.Index) *cluster.GroupProgress {
	got := m.Progress(ident.Partition{Topic: g.Topic, Index: p}, []ident.GroupID{g.ID})
	if len(got) == 0 {
		return nil
	}
	return &got[0]
}

type place struct {
	group     ident.GroupID
	partition ident.Index
}

// dyingFault says what is wrong with who is said to have letters on their way.
func dyingFault(m *state.Machine, s *cluster.Snapshot) string {
	for _, t := range s.ByID {
		for _, p := range t.Partitions {
			want := map[ident.GroupID]bool{}
			for g := range s.Groups[t.ID].All() {
				if got := progressOf(m, g, p.Index); got != nil && len(got.Intents) > 0 {
					want[g.ID] = true
				}
			}
			beyond := ident.GroupID{}
			for some := m.Dying(t.Ref(p.Index), beyond, 2); len(some) > 0; some = m.Dying(t.Ref(p.Index), beyond, 2) {
				for _, g := range some {
					if !want[g.Group] || bytes.Compare(g.Group[:], beyond[:]) <= 0 {
						return "a group is said to have letters on their way, and has none, or is named twice"
					}
					delete(want, g.Group)
					beyond = g.Group
				}
			}
			if len(want) > 0 {
				return "a group with letters on their way is left out"
			}
		}
	}
	return ""
}

// everything is the progress of all groups on all partitions.
func everything(m *state.Machine, s *cluster.Snapshot) map[place]cluster.GroupProgress {
	all := map[place]cluster.GroupProgress{}
	for _, g := range allGroups(s) {
		for _, p := range s.ByID[g.Topic].Partitions {
			if got := progressOf(m, g, p.Index); got != nil {
				all[place{g.ID, p.Index}] = *got
			}
		}
	}
	return all
}

// Whatever happens, a partition has one owner in one assignment epoch, owners are even,
// nothing moves unless it was let go, floors fall by resets alone, a commit that is not
// taken does nothing, and one that is said twice does it once.
func TestGroupsStayWhole(t *testing.T) {
	var handed, lapsed, taken, refused, resets, moved int
	kinds := slices.Concat(groupKinds(), groupKinds(), groupKinds(), groupKinds(), clusterKinds())
	rapid.Check(t, func(t *rapid.T) {
		m, twin := state.New(), state.New()
		begin := opening()
		follower := &cluster.Snapshot{} // another node, by the feed
		for i := range len(begin) + rapid.IntRange(60, 200).Draw(t, "commands") {
			was := m.Snapshot()
			before := everything(m, was)
			var c *state.Command
			if i < len(begin) {
				c = begin[i]
			} else {
				c = drawCommand(t, m, byte(i+1), kinds)
			}
			b := mustEncode(t, c)
			index := uint64(2*i + 2)
			if i < len(begin) {
				index = uint64(i + 2)
			}
			got := apply(t, m, index, b)
			if other := apply(t, twin, index, b); other != got {
				t.Fatalf("two machines answer\n%s\n%s", got, other)
			}
			now := m.Snapshot()
			if rapid.IntRange(0, 3).Draw(t, "news") == 0 {
				follower = follow(t, follower, now)
			}
			after := everything(m, now)
			if fault := dyingFault(m, now); fault != "" {
				t.Fatal(fault)
			}
			for id, table := range now.Groups {
				if table.Len() == 0 || now.ByID[id] == nil {
					t.Fatal("a table of no groups, or of no topic")
				}
			}
			for _, g := range allGroups(now) {
				if wrong := groupFault(now, g); wrong != "" {
					t.Fatalf("%s after %s: %+v", wrong, b[5:], g)
				}
				old := find(was, g.ID)
				if old == nil {
					continue
				}
				if wrong := groupStep(index, c, old, g); wrong != "" {
					t.Fatalf("%s after %s:\n%+v\n%+v", wrong, b[5:], old, g)
				}
				if c.Release != nil && old != g {
					handed++
				}
				if c.MemberLapse != nil && old != g {
					lapsed++
				}
			}
			for at, p := range after {
				if old, ok := before[at]; ok {
					if wrong := progressStep(&old, &p); wrong != "" {
						t.Fatalf("%s after %s:\n%+v\n%+v", wrong, b[5:], old, p)
					}
					if p.Reset > old.Reset {
						resets++
					}
					if p.Floor > old.Floor && c.Commit != nil {
						moved++
					}
				}
			}
			if c.Commit == nil {
				continue
			}
			if now.Groups != nil && !slices.Equal(allGroups(was), allGroups(now)) {
				t.Fatal("a commit changed what the feed tells")
			}
			var a cluster.Answer
			if err := json.Unmarshal([]byte(got), &a); err != nil {
				t.Fatal(err)
			}
			if a.Index != index { // a retry of something else
				continue
			}
			for k, ok := range a.Taken {
				at := place{c.Commit.Of[k].Group, c.Commit.Of[k].Partition}
				if ok {
					taken++
				} else if refused++; string(must(json.Marshal(before[at]))) != string(must(json.Marshal(after[at]))) {
					t.Fatalf("a part that was not taken did something: %s", b[5:])
				}
			}
			// The same again, as a retry under whatever request.
			c.Request = state.RequestID{3, byte(i)}
			b = mustEncode(t, c)
			if again, other := apply(t, m, index+1, b), apply(t, twin, index+1, b); again != other {
				t.Fatalf("two machines answer\n%s\n%s", again, other)
			}
			if a, b := must(json.Marshal(list(after))), must(json.Marshal(list(everything(m, m.Snapshot())))); string(a) != string(b) {
				t.Fatalf("said twice it does more:\n%s\n%s", a, b)
			}
		}
		if a, b := encode(t, m), encode(t, twin); string(a) != string(b) {
			t.Fatal("the same commands gave two states")
		} else if back, err := state.Restore(a); err != nil || string(encode(t, back)) != string(a) {
			t.Fatalf("the state does not come back: %v", err)
		}
	})
	t.Logf("%d hand-overs, %d groups lost members, %d parts of commits taken and %d not, %d floors moved, %d resets", handed, lapsed, taken, refused, moved, resets)
	if handed == 0 || lapsed == 0 || taken == 0 || refused == 0 || moved == 0 || resets == 0 {
		t.Fatal("the states that this is about were not reached")
	}
}

// follow brings a snapshot up to another by what the feed says of it.
func follow(t *rapid.T, has, now *cluster.Snapshot) *cluster.Snapshot {
	next, err := now.Since(has.Mark()).Apply(has)
	if err != nil {
		t.Fatal(err)
	}
	want := *now
	want.GroupsGone, want.GroupsFloor = nil, 0 // of a coordinator alone
	if !reflect.DeepEqual(next, &want) {
		t.Fatalf("who follows has\n%s\nnot\n%s", must(json.Marshal(next)), must(json.Marshal(&want)))
	}
	return next
}

func find(s *cluster.Snapshot, id ident.GroupID) *cluster.Group {
	for _, g := range allGroups(s) {
		if g.ID == id {
			return g
		}
	}
	return nil
}

func list(of map[place]cluster.GroupProgress) (all []cluster.GroupProgress) {
	for _, p := range of {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b cluster.GroupProgress) int {
		return slices.Compare(append(a.Group[:], byte(a.Partition)), append(b.Group[:], byte(b.Partition)))
	})
	return all
}
