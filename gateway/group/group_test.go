package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

func world(mode cluster.GroupMode, owners ...cluster.Owner) (*cluster.Snapshot, View) {
	t := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders"}
	for i := range 3 {
		t.Partitions = append(t.Partitions, cluster.Partition{Index: ident.Index(i), Leader: ident.NodeID{byte(i % 2)}})
	}
	g := &cluster.Group{ID: ident.GroupID{7}, Topic: t.ID, Name: "g", Settings: cluster.GroupSettings{Mode: mode}, Members: []cluster.Member{{ID: "a", Epoch: 5}}, Owners: owners}
	s := &cluster.Snapshot{
		Index: 9, Topics: map[string]*cluster.Topic{"orders": t}, ByID: map[ident.TopicID]*cluster.Topic{t.ID: t},
		Groups: map[ident.TopicID]*cluster.GroupTable{t.ID: (*cluster.GroupTable)(nil).With(g)},
	}
	return s, View{9, t, g}
}

func TestAMemberHasWhatItOwnsAndIsNotToGiveUp(t *testing.T) {
	_, v := world(cluster.Exclusive, cluster.Owner{Partition: 0, Member: "a"}, cluster.Owner{Partition: 1, Member: "a", Next: "b", Epoch: 4, Notice: 6}, cluster.Owner{Partition: 2, Member: "b"})
	if got := fmt.Sprint(v.Assigned("a"), v.Assigned("b"), v.Assigned("c")); got != "{[0] [1]} {[2] []} {[] []}" {
		t.Error(got)
	}
	_, shared := world(cluster.Shared)
	if got := fmt.Sprint(shared.Assigned("a")); got != "{[0 1 2] []}" {
		t.Error(got)
	}
	// What it leaves out it gives up, of what it has to give up.
	if got := v.Given("a", []ident.Index{0}); len(got) != 1 || got[0].Partition != 1 || got[0].Epoch != 4 || got[0].Notice != 6 || got[0].Group != v.Group.ID {
		t.Error(got)
	}
	if got := v.Given("a", []ident.Index{1}); got != nil {
		t.Error("0 is its own and 1 is held:", got)
	}
	gained, lost := v.Assigned("a").Changes(Assignment{Held: []ident.Index{1, 2}})
	if fmt.Sprint(gained, lost) != "[0] [1 2]" {
		t.Error(gained, lost)
	}
}

func TestOnlyTheLatestLifeCounts(t *testing.T) {
	s, v := world(cluster.Shared)
	if m, err := v.Life("a", 5); err != nil || m.ID != "a" {
		t.Error(err)
	}
	for member, epoch := range map[string]ident.MemberEpoch{"a": 4, "b": 5} {
		if _, err := v.Life(member, epoch); !fault.Is(err, fault.Fenced) {
			t.Error(member, err)
		}
	}
	if _, err := Find(s, "nothing", "g"); !fault.Is(err, fault.TopicNotFound) {
		t.Error(err)
	}
	if _, err := Find(s, "orders", "h"); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
	// A group of the same name is another group.
	again := *v.Group
	again.ID = ident.GroupID{8}
	s.Groups[v.Topic.ID] = s.Groups[v.Topic.ID].With(&again)
	if _, err := Of(s, v); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
}

func TestPartitionsAreSortedByTheirLeaders(t *testing.T) {
	_, v := world(cluster.Shared)
	got := Leaders(v.Topic, []ident.Index{0, 1, 2, 9})
	if len(got) != 2 || len(got[ident.NodeID{}]) != 3 || len(got[ident.NodeID{1}]) != 1 {
		t.Error(got)
	}
}

func TestHeartbeats(t *testing.T) {
	for session, want := range map[time.Duration]time.Duration{10 * time.Second: 3 * time.Second, 9 * time.Second: 3 * time.Second, 5 * time.Second: time.Second, time.Second: 300 * time.Millisecond, 2 * time.Second: 600 * time.Millisecond} {
		if got := Heartbeat(session); got != want {
			t.Errorf("%s: %s, want %s", session, got, want)
		}
	}
}

// batch is one batch of JSON records at offsets from base on.
func batch(base ident.Offset, values ...string) []byte {
	var b record.Builder
	for _, v := range values {
		b.Add(&record.Record{ContentType: record.JSON, Value: []byte(v)})
	}
	out := b.Seal()
	out.Assign(record.Place{Partition: ident.Partition{Index: 1}, Epoch: 1, Base: base, Timestamp: 1000})
	return out
}

func TestLeasedRecordsAreMessagesWithTheirLeases(t *testing.T) {
	now := time.UnixMilli(50_000)
	of := &rpc.TakenOf{
		Batches: append(batch(4, "4", "5", "6"), batch(7, "7")...),
		Leases:  []rpc.Lease{{Offset: 7, Delivery: 2, Left: 1500 * time.Millisecond}, {Offset: 5, Delivery: 1, Left: -time.Second}},
	}
	lines, err := Lines("orders", of, now)
	if err != nil || len(lines) != 2 {
		t.Fatal(lines, err)
	}
	const want = `{"topic":"orders","partition":1,"offset":7,"timestamp":"1970-01-01T00:00:01.000Z","key":null,"content_type":"application/json","headers":{},"value":7,"delivery":2,"lease_ms":1500,"lease_until":"1970-01-01T00:00:51.500Z"}`
	if string(lines[0]) != want {
		t.Errorf("got  %s\nwant %s", lines[0], want)
	}
	if !strings.HasSuffix(string(lines[1]), `"value":5,"delivery":1,"lease_ms":0,"lease_until":"1970-01-01T00:00:50.000Z"}`) {
		t.Errorf("%s", lines[1])
	}
	of.Leases = append(of.Leases, rpc.Lease{Offset: 8})
	if _, err := Lines("orders", of, now); err == nil {
		t.Error("a lease without its record")
	}
}

func entries(text string) (out []wire.Entry) {
	for word := range strings.FieldsSeq(text) {
		var verb string
		e := wire.Entry{Delay: -1}
		if _, err := fmt.Sscanf(strings.ReplaceAll(word, ":", " "), "%s %d %d", &verb, &e.Partition, &e.Offset); err != nil {
			panic(err)
		}
		e.Verb = wire.Verb(verb)
		out = append(out, e)
	}
	return out
}

func TestWhatMayTravelTogether(t *testing.T) {
	for _, c := range []struct {
		first, then string
		together    bool
	}{
		{"ack:0:1", "ack:0:1 ack:0:2 ack:1:1", true},
		{"ack:0:1", "nack:0:1", false},
		{"nack:0:1", "ack:0:1", false},
		{"nack:0:1", "nack:0:1", false},
		{"nack:0:1", "reject:0:2 extend:0:3 nack:1:1", true},
		{"through:0:5", "through:0:9 ack:0:3", true},
		{"through:0:5", "nack:0:5", false},
		{"through:0:5", "nack:0:6", true},
		{"nack:0:6", "through:0:5", true},
		{"nack:0:6", "through:0:6", false},
		{"through:0:5", "nack:1:5", true},
	} {
		var b Batch
		if !b.Add(entries(c.first)) || b.Add(entries(c.then)) != c.together {
			t.Errorf("%s with %s", c.first, c.then)
		}
		if err := Twice(append(entries(c.first), entries(c.then)...)); (err == nil) != c.together {
			t.Errorf("%s with %s: %v", c.first, c.then, err)
		}
	}
}

func TestEachCallGetsItsOwnAnswer(t *testing.T) {
	var b Batch
	one, two := entries("ack:0:1 through:1:9"), entries("ack:0:2 reject:0:3 nack:2:1")
	if !b.Add(one) || !b.Add(two) || b.Count() != 5 {
		t.Fatal("they go together")
	}
	var ways Batch
	if !ways.Add(entries("through:0:3")) || !ways.Add(entries("through:0:9 through:0:5")) || fmt.Sprint(ways.Parts(ident.TopicID{})[0].Ack, ways.Parts(ident.TopicID{})[0].Through) != "[3 5] 9" {
		t.Errorf("%+v", ways.Parts(ident.TopicID{}))
	}
	parts := b.Parts(ident.TopicID{1})
	if len(parts) != 3 || fmt.Sprint(parts[0].Ack) != "[1 2]" || len(parts[0].Reject) != 1 || parts[0].Through != -1 || parts[1].Through != 9 || len(parts[2].Nack) != 1 || parts[2].Partition.Topic.IsZero() {
		t.Fatalf("%+v", parts)
	}
	gone, lost, away := fault.New(fault.Fenced, "gone"), fault.New(fault.UnknownOutcome, "who knows"), fault.New(fault.LeaderUnavailable, "no leader")
	answer := func(of ...rpc.SettledOf) string {
		o := Outcomes(of, time.Time{})
		var out []string
		for _, call := range [][]wire.Entry{one, two} {
			done, err := o.Of(call)
			text := fmt.Sprint(Told(done.Stale))
			if err != nil {
				text += fmt.Sprint(" ", fault.KindOf(err), fault.As(err).Fields["partitions"])
			}
			out = append(out, text)
		}
		return strings.Join(out, ", ")
	}
	ref := func(i ident.Index) ident.Partition { return ident.Partition{Topic: ident.TopicID{1}, Index: i} }
	for _, c := range []struct {
		of   []rpc.SettledOf
		want string
	}{
		{[]rpc.SettledOf{{Partition: ref(0)}, {Partition: ref(1)}, {Partition: ref(2)}}, "[], []"},
		{[]rpc.SettledOf{{Partition: ref(0), Stale: []rpc.Stale{{Offset: 3, Err: gone}}}, {Partition: ref(1)}, {Partition: ref(2)}}, "[], [{0 3 fenced}]"},
		// What lies before an entry that speaks for all is told to its call, once.
		{[]rpc.SettledOf{{Partition: ref(0)}, {Partition: ref(1), Stale: []rpc.Stale{{Offset: 10, Err: gone}, {Offset: 7, Err: gone}, {Offset: 9, Err: gone}, {Offset: 7, Err: gone}}}, {Partition: ref(2)}}, "[{1 7 fenced} {1 9 fenced}], []"},
		{[]rpc.SettledOf{{Partition: ref(0), Err: gone}, {Partition: ref(1)}, {Partition: ref(2)}}, "[{0 1 fenced}], [{0 2 fenced} {0 3 fenced}]"},
		{[]rpc.SettledOf{{Partition: ref(0), Stale: []rpc.Stale{{Offset: 2, Err: gone}}}, {Partition: ref(1), Err: lost}, {Partition: ref(2), Err: away}}, "[] unknown-outcome [1], [{0 2 fenced}] leader-unavailable [2]"},
		{[]rpc.SettledOf{{Partition: ref(0), Err: lost}, {Partition: ref(1), Err: away}, {Partition: ref(2), Err: away}}, "[] unknown-outcome [0 1], [] unknown-outcome [0 2]"},
	} {
		if got := answer(c.of...); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Who extends a lease hears how long it is then; of others nothing is said.
func TestAnExtensionSaysHowLongTheLeaseIs(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := Outcomes([]rpc.SettledOf{
		{Extended: []rpc.Extended{{Offset: 3, Left: 30 * time.Second}, {Offset: 4, Left: time.Second}}, Stale: []rpc.Stale{{Offset: 5, Err: fault.New(fault.Fenced, "no")}}},
	}, now)
	done, err := o.Of(entries("extend:0:3 extend:0:5 ack:0:4"))
	if err != nil || len(done.Stale) != 1 {
		t.Fatal(done, err)
	}
	got := string(AppendExtended(nil, done.Extended, now.Add(400*time.Millisecond)))
	if want := `[{"partition":0,"offset":3,"lease_ms":29600,"lease_until":"2023-11-14T22:13:50.000Z"}]`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestAnEntryIsRefusedForItsOwnRecordAlone(t *testing.T) {
	stale := []Stale{{Partition: 0, Offset: 4}, {Partition: 0, Offset: 7}, {Partition: 1, Offset: 2}}
	for said, want := range map[string]int{"through:0:9": 0, "through:0:7": 1, "ack:0:4 ack:1:2 ack:1:4": 2, "ack:0:3": 0} {
		if n := Refused(entries(said), stale); n != want {
			t.Errorf("%s: %d are refused", said, n)
		}
	}
}

// Whatever calls come, what is gathered says of each record the one thing that was said
// of it, and nothing in a batch depends on the order within it.
func TestABatchSaysWhatWasSaid(t *testing.T) {
	verbs := []wire.Verb{wire.Ack, wire.Through, wire.Nack, wire.Extend, wire.Reject}
	rapid.Check(t, func(t *rapid.T) {
		var b Batch
		var taken []wire.Entry
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			call := make([]wire.Entry, rapid.IntRange(1, 4).Draw(t, "entries"))
			for i := range call {
				call[i] = wire.Entry{Verb: rapid.SampledFrom(verbs).Draw(t, "verb"), Partition: ident.Index(rapid.IntRange(0, 1).Draw(t, "partition")), Offset: ident.Offset(rapid.IntRange(0, 6).Draw(t, "offset"))}
			}
			if Twice(call) == nil && b.Add(call) {
				taken = append(taken, call...)
			}
		}
		said := map[place]wire.Verb{}
		through := map[ident.Index]ident.Offset{0: -1, 1: -1}
		for _, e := range taken {
			if e.Verb == wire.Through {
				through[e.Partition] = max(through[e.Partition], e.Offset)
			}
		}
		for _, e := range taken {
			if e.Verb == wire.Through {
				if e.Offset == through[e.Partition] {
					continue
				}
				e.Verb = wire.Ack // it is named beside the last one
			}
			at := place{e.Partition, e.Offset}
			if before, ok := said[at]; ok && (before != wire.Ack || e.Verb != wire.Ack) {
				t.Fatalf("two things of %v", at)
			}
			said[at] = e.Verb
		}
		for at, verb := range said {
			if verb != wire.Ack && at.offset <= through[at.partition] {
				t.Fatalf("%s of %v, and all through %d", verb, at, through[at.partition])
			}
		}
		for _, p := range b.Parts(ident.TopicID{1}) {
			n := len(p.Ack) + len(p.Nack) + len(p.Extend) + len(p.Reject)
			for at := range said {
				if at.partition == p.Partition.Index {
					n--
				}
			}
			if n != 0 || p.Through != through[p.Partition.Index] {
				t.Fatalf("%+v says something else than %v", p, said)
			}
		}
	})
}
