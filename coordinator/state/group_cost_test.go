package state_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// crowded is a machine with so many groups on one topic of so many partitions, which node
// 1 leads in epoch 1.
func crowded(t testing.TB, groups, partitions int) (m *state.Machine, do func(cluster.Change) cluster.Answer) {
	m, do = large(t, 20)
	for id := byte(2); id <= 3; id++ {
		do(cluster.Change{Expire: &cluster.Expire{Lives: []cluster.Life{m.Snapshot().Nodes[ident.NodeID{id}].Life()}}})
	}
	topic := do(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{2}, Spec: cluster.TopicSpec{Name: "orders", Partitions: &partitions, SettingsPatch: cluster.SettingsPatch{MinInsync: new(1)}}}}).Topic
	for i := range groups {
		do(crowd(topic, i))
	}
	return m, do
}

func crowd(t *cluster.Topic, i int) cluster.Change {
	r := &cluster.GroupRegister{ID: ident.GroupID{1, byte(i), byte(i >> 8)}, Topic: t.ID, Name: fmt.Sprint("group-", i)}
	for k := range t.Partitions {
		r.Starts = append(r.Starts, cluster.Position{Partition: t.Partitions[k].Index})
	}
	return cluster.Change{GroupRegister: r}
}

// allocates is how many bytes of memory something takes, on the average of so many times.
func allocates(times int, do func(i int)) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		do(i)
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / times
}

// What a registration, a join and a commit cost does not grow with the groups that there
// are: nothing that holds all of them is copied, though the feed is shown every change.
func TestManyGroupsMakeNoChangeDear(t *testing.T) {
	const many = 10_000
	m, do := crowded(t, 0, 1)
	topic := m.Snapshot().Topics["orders"]
	next := 0
	register := func(int) {
		do(crowd(topic, next))
		next++
	}
	join := func(i int) {
		do(cluster.Change{MemberJoin: &cluster.MemberJoin{Group: ident.GroupID{1, byte(i)}, Member: fmt.Sprint("m", next)}})
	}
	life := m.Snapshot().Nodes[ident.NodeID{1}].Life()
	commit := func(i int) {
		a := do(cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{{Group: ident.GroupID{1, byte(i)}, Leader: 1, Done: []cluster.Span{{From: ident.Offset(2 * i), To: ident.Offset(2*i + 1)}}}}}})
		if !a.Taken[0] {
			t.Fatal("a commit was not taken")
		}
	}
	figures := func() [3]int { return [3]int{allocates(100, register), allocates(100, join), allocates(100, commit)} }
	few := figures()
	for next < many {
		register(0)
	}
	then := figures()
	t.Logf("bytes of memory for a registration, a join, a commit: %v beside 100 groups, %v beside %d", few, then, many)
	for i := range few {
		if then[i] > few[i]+40_000 { // a map of 10,000 is ten times as large
			t.Errorf("%d bytes instead of %d", then[i], few[i])
		}
	}
	if then[2] > few[2]+4_000 {
		t.Error("a commit copies what it does not change")
	}
}

// A capture costs a commit the one group's progress, once, and never sees it.
func TestACaptureStaysAsItWas(t *testing.T) {
	m, do := crowded(t, 3, 4)
	life := m.Snapshot().Nodes[ident.NodeID{1}].Life()
	commit := func(o ident.Offset) {
		do(cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{
			{Group: ident.GroupID{1, 1}, Partition: 2, Leader: 1, Done: []cluster.Span{{From: o, To: o + 1}, {From: o + 5, To: o + 6}}, Counts: []cluster.Count{{Offset: o + 3, Deliveries: 2}}},
		}}})
	}
	commit(0)
	before := encode(t, m)
	captured := m.Capture()
	for o := range ident.Offset(20) {
		commit(o)
	}
	var b strings.Builder
	if _, err := captured.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != string(before) {
		t.Fatal("later commits changed what was captured")
	}
}

// The bounds of groups, each with what to do.
func TestGroupsHaveBounds(t *testing.T) {
	m, do := crowded(t, 2, 2)
	topic := m.Snapshot().Topics["orders"]
	refused := func(c cluster.Change, code, tells string) {
		t.Helper()
		a, err := m.Apply(m.Index()+1, mustEncode(t, &state.Command{Request: state.RequestID{9, byte(m.Index()), byte(m.Index() >> 8)}, Change: c}))
		if err != nil || a.Refusal == nil || a.Refusal.Code != code || !strings.Contains(a.Refusal.Detail, tells) {
			t.Errorf("%s: %+v, %v", c.Kind(), a.Refusal, err)
		}
	}
	for i := range cluster.MaxGroupMembers {
		do(cluster.Change{MemberJoin: &cluster.MemberJoin{Group: ident.GroupID{1, 0}, Member: fmt.Sprint("m", i)}})
	}
	refused(cluster.Change{MemberJoin: &cluster.MemberJoin{Group: ident.GroupID{1, 0}, Member: "one-more"}}, "limit", "records in flight")
	do(cluster.Change{MemberJoin: &cluster.MemberJoin{Group: ident.GroupID{1, 0}, Member: "m7"}}) // one that is there
	do(cluster.Change{MemberJoin: &cluster.MemberJoin{Group: ident.GroupID{1, 1}, Member: "one-more"}})

	lapse := &cluster.MemberLapse{Lives: make([]cluster.MemberLife, cluster.MaxLapse+1)}
	refused(cluster.Change{MemberLapse: lapse}, "invalid", "more than")
	release := &cluster.Release{Of: make([]cluster.ReleaseOf, cluster.MaxRelease+1)}
	refused(cluster.Change{Release: release}, "invalid", "more than")

	// More above the floor than there may be.
	life := m.Snapshot().Nodes[ident.NodeID{1}].Life()
	var last cluster.Answer
	for i := 0; i < 8*cluster.MaxUnfinished; i += cluster.MaxUnfinished / 2 {
		c := cluster.CommitOf{Group: ident.GroupID{1, 1}, Leader: 1}
		for k := range cluster.MaxUnfinished / 2 {
			o := ident.Offset(1 + 2*(i+k))
			c.Done = append(c.Done, cluster.Span{From: o, To: o + 1})
		}
		last = do(cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{c}}})
	}
	if last.Taken[0] {
		t.Error("a progress grows without a bound")
	}
	if p := m.Progress(topic.Ref(0), []ident.GroupID{{1, 1}}); len(p[0].Done) > 4*cluster.MaxUnfinished {
		t.Errorf("%d spans", len(p[0].Done))
	}
}

// The largest changes of groups that the bounds allow fit into a command.
func TestTheLargestChangesOfGroupsFit(t *testing.T) {
	life := cluster.MemberLife{Group: ident.GroupID{1}, Member: strings.Repeat("m", ident.MaxMemberBytes), Epoch: 1 << 50}
	lapse, release := &cluster.MemberLapse{}, &cluster.Release{}
	register := &cluster.GroupRegister{Name: strings.Repeat("g", ident.MaxNameBytes), Patch: cluster.GroupPatch{DeadLetter: new(strings.Repeat("d", ident.MaxNameBytes))}}
	for range cluster.MaxLapse {
		lapse.Lives = append(lapse.Lives, life)
	}
	for range cluster.MaxRelease {
		release.Of = append(release.Of, cluster.ReleaseOf{Group: life.Group, Partition: 1 << 31, Epoch: 1 << 50, Drained: true})
	}
	for range cluster.MaxPartitions {
		register.Starts = append(register.Starts, cluster.Position{Partition: 1 << 31, Offset: 1 << 61})
	}
	for _, c := range []cluster.Change{{MemberLapse: lapse}, {Release: release}, {GroupRegister: register}, {GroupReset: &cluster.GroupReset{Starts: register.Starts}}} {
		if _, err := state.Encode(&state.Command{Change: c}); err != nil {
			t.Error(c.Kind(), err)
		}
	}
	commit := &cluster.Commit{}
	for {
		commit.Of = append(commit.Of, cluster.CommitOf{Group: life.Group, Done: []cluster.Span{{From: 1, To: 2}}})
		if b, err := state.Encode(&state.Command{Change: cluster.Change{Commit: commit}}); err != nil {
			return
		} else if len(b) > cluster.MaxCommitBytes {
			t.Fatalf("a commit of %d bytes passes", len(b))
		}
	}
}

// BenchmarkCommit is a commit of 200 groups, each with a few acknowledgements.
func BenchmarkCommit(b *testing.B) {
	const groups = 200
	m, _ := crowded(b, groups, 8)
	life := m.Snapshot().Nodes[ident.NodeID{1}].Life()
	var commands [][]byte
	for i := range 100 {
		c := &cluster.Commit{Leader: life}
		for g := range groups {
			o := ident.Offset(3 * i)
			c.Of = append(c.Of, cluster.CommitOf{Group: ident.GroupID{1, byte(g)}, Partition: ident.Index(g % 8), Leader: 1, Done: []cluster.Span{{From: o, To: o + 1}, {From: o + 2, To: o + 3}}, Counts: []cluster.Count{{Offset: o + 1, Deliveries: 2}}})
		}
		commands = append(commands, mustEncode(b, &state.Command{Change: cluster.Change{Commit: c}}))
	}
	b.SetBytes(int64(len(commands[0])))
	for i := 0; b.Loop(); i++ {
		if a, err := m.Apply(m.Index()+1, commands[i%len(commands)]); err != nil || !a.Taken[0] {
			b.Fatal(a, err)
		}
	}
}
