package deliver_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
	"tidewire/internal/wire"
)

func places(s deliver.Start) string {
	var out []string
	for _, p := range s.Places {
		out = append(out, fmt.Sprintf("%d:%d@%d", p.Partition, p.Offset, p.Epoch))
	}
	return strings.Join(out, " ")
}

func cursorOf(t *cluster.Topic, r ident.HashRange, p ...cursor.Place) string {
	return cursor.Of(t, r, p).String()
}

// TestResolve begins in a topic of two partitions: 0 holds offsets 3 to 10 in
// epoch 2 (epoch 1 ended at 6), 1 is empty in epoch 1.
func TestResolve(t *testing.T) {
	m := memlog.New()
	other := m.Topic("other", 1)
	topic := m.Topic("orders", 2)
	zero := topic.Ref(0)
	for range 6 {
		m.Append(zero, "")
	}
	m.Elect(zero, memlog.All)
	for range 4 {
		m.Append(zero, "")
	}
	m.Retain(zero, 3)
	h := startHub(t, m, deliver.Config{})
	full := ident.FullRange
	half := topic.Partitions[0].Range
	keyOf := func(p ident.Index) string {
		for i := 0; ; i++ {
			if k := fmt.Sprint("k", i); ownerOf(topic, k) == p {
				return k
			}
		}
	}
	k0, k1 := keyOf(0), keyOf(1)
	whole := cursorOf(topic, full, cursor.Place{Partition: 0, Epoch: 1, Offset: 5}, cursor.Place{Partition: 1, Epoch: 1, Offset: 0})
	at0 := func(e ident.Epoch, o ident.Offset) string {
		return cursorOf(topic, half, cursor.Place{Partition: 0, Epoch: e, Offset: o})
	}
	only := deliver.Filter{Partition: at(0)}
	offset := func(o ident.Offset) *ident.Offset { return &o }
	for name, c := range map[string]struct {
		q      deliver.Request
		places string
		gap    string // reason requested earliest end
		err    fault.Kind
		field  string
	}{
		"nothing given":            {q: deliver.Request{DefaultFrom: "earliest"}, places: "0:3@2 1:0@1"},
		"latest":                   {q: deliver.Request{From: "latest"}, places: "0:10@2 1:0@1"},
		"a time":                   {q: deliver.Request{From: string(wire.AppendTime(nil, 8))}, places: "0:7@2 1:0@1"},
		"a time to come":           {q: deliver.Request{From: string(wire.AppendTime(nil, 800))}, places: "0:10@2 1:0@1"},
		"one partition":            {q: deliver.Request{From: "latest", Filter: only}, places: "0:10@2"},
		"one key":                  {q: deliver.Request{From: "latest", Filter: deliver.Filter{Keys: []string{k1}}}, places: "1:0@1"},
		"two keys":                 {q: deliver.Request{From: "latest", Filter: deliver.Filter{Keys: []string{k1, k0}}}, places: "0:10@2 1:0@1"},
		"a prefix":                 {q: deliver.Request{From: "latest", Filter: deliver.Filter{KeyPrefix: "k"}}, places: "0:10@2 1:0@1"},
		"a key of another one":     {q: deliver.Request{From: "latest", Filter: deliver.Filter{Keys: []string{k1}, Partition: at(0)}}, err: fault.WrongPartition, field: "partition"},
		"no such partition":        {q: deliver.Request{From: "latest", Filter: deliver.Filter{Partition: at(7)}}, err: fault.PartitionNotFound},
		"not a time":               {q: deliver.Request{From: "yesterday"}, err: fault.Invalid, field: "from"},
		"a cursor":                 {q: deliver.Request{Cursor: whole}, places: "0:5@1 1:0@1"},
		"a cursor, less asked":     {q: deliver.Request{Cursor: whole, Filter: only}, places: "0:5@1"},
		"a cursor, a key asked":    {q: deliver.Request{Cursor: whole, Filter: deliver.Filter{Keys: []string{k0}}}, places: "0:5@1"},
		"a cursor, more asked":     {q: deliver.Request{Cursor: at0(2, 7)}, err: fault.Invalid, field: "cursor"},
		"a cursor, another asked":  {q: deliver.Request{Cursor: at0(2, 7), Filter: deliver.Filter{Partition: at(1)}}, err: fault.Invalid, field: "cursor"},
		"a cursor with a hole":     {q: deliver.Request{Cursor: cursorOf(topic, full, cursor.Place{Partition: 0, Epoch: 2, Offset: 7})}, err: fault.Invalid, field: "cursor"},
		"the end of an epoch":      {q: deliver.Request{Cursor: at0(1, 6), Filter: only}, places: "0:6@1"},
		"past the end of an epoch": {q: deliver.Request{Cursor: at0(1, 7), Filter: only}, places: "0:6@2", gap: "truncated 0:7 0:3 0:10"},
		"past the end of the log":  {q: deliver.Request{Cursor: at0(2, 12), Filter: only}, places: "0:10@2", gap: "truncated 0:12 0:3 0:10"},
		"older than retention":     {q: deliver.Request{Cursor: at0(1, 2), Filter: only}, places: "0:3@2", gap: "expired 0:2 0:3 0:10"},
		"one of two expired":       {q: deliver.Request{Cursor: cursorOf(topic, full, cursor.Place{Partition: 0, Epoch: 1, Offset: 0}, cursor.Place{Partition: 1, Epoch: 1})}, places: "0:3@2 1:0@1", gap: "expired 0:0 0:3 0:10"},
		"another topic's":          {q: deliver.Request{Cursor: cursorOf(other, full, cursor.Place{Epoch: 1})}, places: "0:3@2 1:0@1", gap: "other-topic " + cursorOf(other, full, cursor.Place{Epoch: 1}) + " 0:3,1:0 0:10,1:0"},
		"not a cursor":             {q: deliver.Request{Cursor: "abc"}, places: "0:3@2 1:0@1", gap: "unknown abc 0:3,1:0 0:10,1:0"},
		"a newer epoch":            {q: deliver.Request{Cursor: at0(3, 7), Filter: only}, err: fault.LeaderUnavailable},
		"after":                    {q: deliver.Request{Cursor: whole, After: map[ident.Index]ident.Offset{0: 7}}, places: "0:8@2 1:0@1"},
		"after what comes before":  {q: deliver.Request{Cursor: whole, After: map[ident.Index]ident.Offset{0: 2}}, places: "0:5@1 1:0@1"},
		"after the last one":       {q: deliver.Request{Cursor: whole, After: map[ident.Index]ident.Offset{0: 9}}, places: "0:10@2 1:0@1"},
		"after the end":            {q: deliver.Request{Cursor: at0(2, 7), Filter: only, After: map[ident.Index]ident.Offset{0: 20}}, places: "0:10@2", gap: "truncated 0:21 0:3 0:10"},
		"after the end, old epoch": {q: deliver.Request{Cursor: at0(1, 4), Filter: only, After: map[ident.Index]ident.Offset{0: 20}}, places: "0:6@2", gap: "truncated 0:21 0:3 0:10"},
		"after saves a cursor":     {q: deliver.Request{Cursor: at0(1, 0), Filter: only, After: map[ident.Index]ident.Offset{0: 5}}, places: "0:6@2"},
		"after, not read":          {q: deliver.Request{Cursor: at0(2, 7), Filter: only, After: map[ident.Index]ident.Offset{1: 5}}, places: "0:7@2"},
		"after, no such partition": {q: deliver.Request{Cursor: whole, After: map[ident.Index]ident.Offset{9: 5}}, err: fault.Invalid, field: "after"},
		"offset":                   {q: deliver.Request{Offset: offset(4), Filter: only}, places: "0:4@2"},
		"offset, no partition":     {q: deliver.Request{Offset: offset(4)}, err: fault.Invalid, field: "partition"},
		"offset, expired":          {q: deliver.Request{Offset: offset(2), Filter: only}, err: fault.OffsetExpired},
		"offset, ahead":            {q: deliver.Request{Offset: offset(40), Filter: only}, places: "0:40@0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := c.q
				q.Topic, q.HasCursor = topic, q.Cursor != ""
				s, err := h.Resolve(t.Context(), q)
				if c.err != 0 {
					if fault.KindOf(err) != c.err || c.field != "" && fault.As(err).Fields["field"] != c.field {
						t.Fatalf("error %v (%s) of field %v, want %s of %q", err, fault.KindOf(err), fault.As(err).Fields["field"], c.err, c.field)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				gap := ""
				if s.Gap != nil {
					gap = strings.Join([]string{s.Gap.Reason, s.Gap.Requested, s.Gap.Earliest, s.Gap.End}, " ")
					again, err := h.Resolve(t.Context(), deliver.Request{Topic: topic, Filter: q.Filter, Cursor: s.Gap.Cursor, HasCursor: true})
					if err != nil || again.Gap != nil || places(again) != places(s) {
						t.Errorf("the gap's cursor leads to %s, %+v, %v; want %s", places(again), again.Gap, err, places(s))
					}
				}
				if places(s) != c.places || gap != c.gap || s.Recovered != (q.HasCursor && c.gap == "") {
					t.Fatalf("places %q, gap %q, recovered %v; want %q, %q", places(s), gap, s.Recovered, c.places, c.gap)
				}
			})
		})
	}
}

func TestResolveWaitsForALeaderAndForNewsOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{})
		ref := topic.Ref(0)
		m.Serve(ref, false)
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { m.Serve(ref, true); m.Elect(ref, 0) })
		ahead := cursorOf(topic, ident.FullRange, cursor.Place{Epoch: 2})
		if s := resolve(t, h, deliver.Request{Topic: topic, Cursor: ahead, HasCursor: true}); !s.Recovered || time.Since(began) < 2*time.Second {
			t.Fatalf("%+v after %v", s, time.Since(began))
		}
		m.Serve(ref, false)
		began = time.Now()
		_, err := h.Resolve(t.Context(), deliver.Request{Topic: topic, From: "latest"})
		if !fault.Is(err, fault.LeaderUnavailable) || time.Since(began) != 5*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		m.DeleteTopic(topic)
		if _, err = h.Resolve(t.Context(), deliver.Request{Topic: topic, From: "latest"}); !fault.Is(err, fault.TopicNotFound) {
			t.Fatalf("a deleted topic: %v", err)
		}
	})
}

// TestResolveReadsParentsFirst uses a layout of two generations: 0 was split
// into 1 and 2.
func TestResolveReadsParentsFirst(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 3)
	all := ident.FullRange
	mid := ident.HashSpace / 2
	p := topic.Partitions
	p[0].Range, p[0].Children = all, []ident.Index{1, 2}
	p[1].Range, p[1].Parents = ident.HashRange{Hi: mid}, []ident.Index{0}
	p[2].Range, p[2].Parents = ident.HashRange{Lo: mid, Hi: ident.HashSpace}, []ident.Index{0}
	topic.Generation = 2
	h := startHub(t, m, deliver.Config{})
	for name, c := range map[string]struct {
		q    deliver.Request
		want string
		err  bool
	}{
		"earliest":                    {q: deliver.Request{From: "earliest"}, want: "0:0@1"},
		"latest":                      {q: deliver.Request{From: "latest"}, want: "1:0@1 2:0@1"},
		"one partition":               {q: deliver.Request{From: "earliest", Filter: deliver.Filter{Partition: at(2)}}, want: "2:0@1"},
		"a cursor before the split":   {q: deliver.Request{Cursor: cursorOf(topic, all, cursor.Place{Partition: 0, Epoch: 1})}, want: "0:0@1"},
		"a cursor behind the split":   {q: deliver.Request{Cursor: cursorOf(topic, all, cursor.Place{Partition: 1, Epoch: 1}, cursor.Place{Partition: 2, Epoch: 1})}, want: "1:0@1 2:0@1"},
		"a child of a parent's place": {q: deliver.Request{Cursor: cursorOf(topic, all, cursor.Place{Partition: 0, Epoch: 1}), Filter: deliver.Filter{Partition: at(1)}}, want: "1:0@0"},
		"half a cut":                  {q: deliver.Request{Cursor: cursorOf(topic, p[1].Range, cursor.Place{Partition: 1, Epoch: 1})}, err: true},
	} {
		q := c.q
		q.Topic, q.HasCursor = topic, q.Cursor != ""
		s, err := h.Resolve(t.Context(), q)
		if (err != nil) != c.err || err == nil && places(s) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, places(s), err, c.want)
		}
	}
}

func FuzzReference(f *testing.F) {
	f.Add(deliver.Reference{Topic: "orders", Filter: deliver.Filter{Partition: at(1), Keys: []string{"k"}}, Cursor: "c"}.String())
	f.Add(deliver.Reference{Topic: "orders", Filter: deliver.Filter{KeyPrefix: "k"}}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := deliver.ParseReference(s); err == nil && r.String() != s {
			t.Fatalf("reference %q became %q", s, r.String())
		}
	})
}

// FuzzCursor resolves cursors that are well formed and say anything at all: the
// answer is a place in the log, told of where it is not the one asked for.
func FuzzCursor(f *testing.F) {
	m := memlog.New()
	topic := m.Topic("orders", 2)
	for range 10 {
		m.Append(topic.Ref(0), "")
	}
	m.Elect(topic.Ref(0), memlog.All)
	m.Retain(topic.Ref(0), 4)
	h := deliver.New(deliver.Config{Source: m, Topology: m})
	f.Add(false, uint64(0), ident.HashSpace, uint32(0), uint32(1), int64(5), uint32(1), uint32(1), int64(0), int64(7), false)
	f.Add(true, uint64(0), ident.HashSpace, uint32(0), uint32(2), int64(50), uint32(9), uint32(1), int64(0), int64(-1), true)
	f.Fuzz(func(t *testing.T, other bool, lo, hi uint64, p0, e0 uint32, o0 int64, p1, e1 uint32, o1, after int64, one bool) {
		if e0 > 2 || e1 > 1 {
			return // of a leader to come: waits
		}
		c := cursor.Cursor{Topic: topic.ID, Generation: 1, Range: ident.HashRange{Lo: lo, Hi: hi}, Places: []cursor.Place{
			{Partition: ident.Index(p0), Epoch: ident.Epoch(e0), Offset: ident.Offset(o0)},
			{Partition: ident.Index(p1), Epoch: ident.Epoch(e1), Offset: ident.Offset(o1)},
		}}
		if other {
			c.Topic[0]++
		}
		q := deliver.Request{Topic: topic, Cursor: c.String(), HasCursor: true}
		if one {
			q.Filter.Partition = at(0)
		}
		if after >= 0 && after < wire.MaxOffset {
			q.After = map[ident.Index]ident.Offset{0: ident.Offset(after)}
		}
		s, err := h.Resolve(t.Context(), q)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
			return
		}
		if s.Recovered == (s.Gap != nil) {
			t.Fatalf("recovered %v, gap %+v", s.Recovered, s.Gap)
		}
		for _, p := range s.Places {
			b, _ := m.Bounds(t.Context(), topic.Ref(p.Partition))
			if p.Offset < b.Start || p.Offset > b.HW && p.Epoch != 0 {
				t.Fatalf("place %+v outside of %+v", p, b)
			}
		}
	})
}

func TestReferencesRoundTrip(t *testing.T) {
	for _, r := range []deliver.Reference{
		{Topic: "orders", Cursor: "abc"},
		{Topic: "orders", Cursor: "abc", Filter: deliver.Filter{Partition: at(7)}},
		{Topic: "orders", Cursor: "abc", Filter: deliver.Filter{Partition: at(0), Keys: []string{"ü"}}},
		{Topic: strings.Repeat("x", 249), Cursor: strings.Repeat("c", 4096), Filter: deliver.Filter{KeyPrefix: strings.Repeat("k", 1024)}},
	} {
		got, err := deliver.ParseReference(r.String())
		if err != nil || fmt.Sprintf("%+v", got.String()) != r.String() || got.Topic != r.Topic || !maps.Equal(set(got.Filter.Keys), set(r.Filter.Keys)) || got.Cursor != r.Cursor || got.Filter.KeyPrefix != r.Filter.KeyPrefix {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		id := []byte(r.String())
		id[len(id)/2] ^= 1
		if _, err := deliver.ParseReference(string(id)); !fault.Is(err, fault.NotFound) {
			t.Errorf("a changed id: %v", err)
		}
	}
}

func set(s []string) map[string]bool {
	out := map[string]bool{}
	for _, k := range s {
		out[k] = true
	}
	return out
}
