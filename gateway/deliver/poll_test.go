package deliver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/budget"
	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

type message struct {
	Partition ident.Index
	Offset    ident.Offset
	Key       string
}

func poll(t *testing.T, h *deliver.Hub, q deliver.PollRequest) ([]message, deliver.PollResult) {
	t.Helper()
	res, err := h.Poll(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var out []message
	if err := json.Unmarshal([]byte("["+string(bytes.Join(res.Messages, nil))+"]"), &out); err != nil {
		t.Fatalf("%s: %v", bytes.Join(res.Messages, nil), err)
	}
	if res.Held != nil {
		res.Held.Close()
	}
	if len(out) != res.Count {
		t.Fatalf("%d messages, count %d", len(out), res.Count)
	}
	return out, res
}

// follow polls from a start until the end and returns what came, by partition.
func follow(t *testing.T, h *deliver.Hub, topic *cluster.Topic, q deliver.PollRequest) (map[ident.Index][]ident.Offset, int) {
	t.Helper()
	got := map[ident.Index][]ident.Offset{}
	for polls := 1; ; polls++ {
		msgs, res := poll(t, h, q)
		for _, m := range msgs {
			got[m.Partition] = append(got[m.Partition], m.Offset)
		}
		if res.End {
			return got, polls
		}
		if polls > 1000 {
			t.Fatal("no end")
		}
		q.Start = resolve(t, h, deliver.Request{Topic: topic, Filter: q.Start.Filter, Cursor: res.Cursor, HasCursor: true})
	}
}

func TestPollsReadEveryRecordOnceInOrder(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 3)
	h := startHub(t, m, deliver.Config{})
	for i := range 300 {
		m.Append(topic.Ref(ident.Index(i%2)), "", "")
	}
	for _, q := range []deliver.PollRequest{{}, {Limit: 1}, {Limit: 7}, {Limit: 10_000, MaxBytes: 1000}, {MaxBytes: 1}} {
		q.Start = resolve(t, h, deliver.Request{Topic: topic, From: "earliest"})
		got, polls := follow(t, h, topic, q)
		for p := range ident.Index(3) {
			want := 300
			if p == 2 {
				want = 0
			}
			if len(got[p]) != want {
				t.Fatalf("%+v: %d messages of partition %d", q, len(got[p]), p)
			}
			for i, o := range got[p] {
				if o != ident.Offset(i) {
					t.Fatalf("offset %d at %d", o, i)
				}
			}
		}
		if q.Limit == 7 && polls < 600/7 {
			t.Fatalf("%d polls", polls)
		}
	}
}

// Where the node holds nearly all it may, polls are smaller, and miss nothing.
func TestPollsAreSmallerWhereMemoryIsShort(t *testing.T) {
	m, held := memlog.New(), budget.New(1<<20)
	topic := m.Topic("orders", 2)
	h := startHub(t, m, deliver.Config{Held: held})
	for i := range 200 {
		m.Append(topic.Ref(ident.Index(i%2)), strings.Repeat("k", 1000))
	}
	hog := held.Share()
	if err := hog.Need(t.Context(), 800_000, time.Second); err != nil {
		t.Fatal(err)
	}
	start := resolve(t, h, deliver.Request{Topic: topic, From: "earliest"})
	got, polls := follow(t, h, topic, deliver.PollRequest{Start: start, Limit: 10_000})
	if len(got[0]) != 100 || len(got[1]) != 100 || polls < 3 {
		t.Errorf("%d and %d messages in %d polls", len(got[0]), len(got[1]), polls)
	}
	for p, offsets := range got {
		for i, o := range offsets {
			if o != ident.Offset(i) {
				t.Fatalf("partition %d: offset %d at %d", p, o, i)
			}
		}
	}
	hog.Close()
	if _, polls := follow(t, h, topic, deliver.PollRequest{Start: start, Limit: 10_000}); polls != 1 || held.Held() != 0 {
		t.Errorf("%d polls, %d bytes held in the end", polls, held.Held())
	}
}

func TestPollTakesItsShareOfEachPartition(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 4)
	h := startHub(t, m, deliver.Config{})
	for p := range ident.Index(4) {
		for range 200 {
			m.Append(topic.Ref(p), "")
		}
	}
	msgs, _ := poll(t, h, deliver.PollRequest{Start: resolve(t, h, deliver.Request{Topic: topic, From: "earliest"}), Limit: 100})
	count := map[ident.Index]int{}
	for _, m := range msgs {
		count[m.Partition]++
	}
	for p := range ident.Index(4) {
		if count[p] != 25 {
			t.Fatalf("%v", count)
		}
	}
}

func TestPollFilters(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 1)
	h := startHub(t, m, deliver.Config{})
	m.Append(topic.Ref(0), "ab", "b", "", "abc", memlog.Void, "ab")
	for _, c := range []struct {
		f    deliver.Filter
		want string
	}{
		{deliver.Filter{}, "ab b  abc ab"},
		{deliver.Filter{Keys: []string{"ab"}}, "ab ab"},
		{deliver.Filter{Keys: []string{"b", "abc"}}, "b abc"},
		{deliver.Filter{KeyPrefix: "ab"}, "ab abc ab"},
	} {
		msgs, res := poll(t, h, deliver.PollRequest{Start: resolve(t, h, deliver.Request{Topic: topic, Filter: c.f, From: "earliest"})})
		var keys []string
		for _, m := range msgs {
			keys = append(keys, m.Key)
		}
		if got := strings.Join(keys, " "); got != c.want || !res.End {
			t.Errorf("%+v: %q, end %v; want %q", c.f, got, res.End, c.want)
		}
	}
}

func TestPollOfAFilterThatMatchesNothingIsBounded(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 1)
	h := startHub(t, m, deliver.Config{})
	big := strings.Repeat("k", 1000)
	row := make([]string, 1000)
	for i := range row {
		row[i] = big
	}
	for range 20 { // 20 MB
		m.Append(topic.Ref(0), row...)
	}
	start := resolve(t, h, deliver.Request{Topic: topic, From: "earliest", Filter: deliver.Filter{Keys: []string{"no"}}})
	_, res := poll(t, h, deliver.PollRequest{Start: start, Wait: time.Minute})
	if res.End || res.Cursor == start.Cursor() {
		t.Fatalf("end %v: one poll read all of it, or did not move", res.End)
	}
	if _, polls := follow(t, h, topic, deliver.PollRequest{Start: start}); polls != 2 {
		t.Fatalf("%d polls", polls)
	}
}

func TestLongPollWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 3)
		h := startHub(t, m, deliver.Config{})
		began := time.Now()
		time.AfterFunc(time.Second, func() { m.Append(topic.Ref(1), "a") })
		time.AfterFunc(3*time.Second, func() { m.Append(topic.Ref(1), "b") })
		q := deliver.Request{Topic: topic, From: "latest", Filter: deliver.Filter{KeyPrefix: "b"}}
		msgs, res := poll(t, h, deliver.PollRequest{Start: resolve(t, h, q), Wait: time.Minute})
		if len(msgs) != 1 || msgs[0].Key != "b" || !res.End || time.Since(began) != 3*time.Second {
			t.Fatalf("%v %+v after %v", msgs, res, time.Since(began))
		}
		q.Cursor, q.HasCursor, q.From = res.Cursor, true, ""
		msgs, res = poll(t, h, deliver.PollRequest{Start: resolve(t, h, q), Wait: 10 * time.Second})
		if len(msgs) != 0 || !res.End || time.Since(began) != 13*time.Second {
			t.Fatalf("%v after %v", msgs, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Poll(ctx, deliver.PollRequest{Start: resolve(t, h, q), Wait: time.Minute}); err != nil || time.Since(began) != 14*time.Second {
			t.Fatalf("a client that leaves: %v after %v", err, time.Since(began))
		}
	})
}

func TestPollAtOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{})
		ref := topic.Ref(0)
		for range 10 {
			m.Append(ref, "")
		}
		offset := func(o ident.Offset) deliver.Start {
			return resolve(t, h, deliver.Request{Topic: topic, Offset: &o})
		}
		if msgs, _ := poll(t, h, deliver.PollRequest{Start: offset(7)}); len(msgs) != 3 || msgs[0].Offset != 7 {
			t.Fatalf("%v", msgs)
		}
		// Ahead of the log: empty, and the cursor stays there without an epoch.
		msgs, res := poll(t, h, deliver.PollRequest{Start: offset(12)})
		if len(msgs) != 0 || !res.End {
			t.Fatalf("%v %+v", msgs, res)
		}
		time.AfterFunc(time.Second, func() { m.Append(ref, "", "", "", "") })
		again := resolve(t, h, deliver.Request{Topic: topic, Filter: deliver.Filter{Partition: at(0)}, Cursor: res.Cursor, HasCursor: true})
		if msgs, _ = poll(t, h, deliver.PollRequest{Start: again, Wait: time.Minute}); len(msgs) != 2 || msgs[0].Offset != 12 {
			t.Fatalf("%v", msgs)
		}
		// Retention between resolve and read.
		start, early := offset(3), resolve(t, h, deliver.Request{Topic: topic, From: "earliest"})
		byCursor := resolve(t, h, deliver.Request{Topic: topic, Cursor: early.Cursor(), HasCursor: true})
		m.Retain(ref, 5)
		_, err := h.Poll(t.Context(), deliver.PollRequest{Start: start})
		if f := fault.As(err); f.Kind != fault.OffsetExpired || f.Fields["earliest"] != ident.Offset(5) || f.Fields["end"] != ident.Offset(14) {
			t.Fatalf("%v %v", err, f.Fields)
		}
		if msgs, _ = poll(t, h, deliver.PollRequest{Start: early}); len(msgs) != 9 || msgs[0].Offset != 5 {
			t.Fatalf("%v", msgs)
		}
		_, err = h.Poll(t.Context(), deliver.PollRequest{Start: byCursor})
		f := fault.As(err)
		if f.Kind != fault.CursorExpired || f.Fields["requested"] != "0:0" || f.Fields["earliest"] != "0:5" || f.Fields["end"] != "0:14" {
			t.Fatalf("%v %v", err, f.Fields)
		}
		next := resolve(t, h, deliver.Request{Topic: topic, Cursor: f.Fields["cursor"].(string), HasCursor: true})
		if msgs, _ = poll(t, h, deliver.PollRequest{Start: next}); len(msgs) != 9 || msgs[0].Offset != 5 {
			t.Fatalf("%v", msgs)
		}
	})
}

// oneBatch gives one batch a read, and runs then behind the read of an offset.
type oneBatch struct {
	*memlog.Broker
	then map[ident.Offset]func()
}

func (o oneBatch) Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) {
	r.MaxBytes = 1
	res, err := o.Broker.Read(ctx, r)
	if then := o.then[r.Offset]; then != nil {
		then()
	}
	return res, err
}

// Retention in the middle of a poll: what it has read already is given, with a
// cursor that stays before the gap, so that the next poll hears of it.
func TestPollPassesNoGapInSilence(t *testing.T) {
	for _, by := range []string{"offset", "cursor"} {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		ref := topic.Ref(0)
		for range 10 {
			m.Append(ref, "")
		}
		h := deliver.New(deliver.Config{Topology: m, Source: oneBatch{m, map[ident.Offset]func(){4: func() { m.Retain(ref, 8) }}}})
		first := ident.Offset(3)
		q := deliver.Request{Topic: topic, Offset: &first}
		if by == "cursor" {
			start := resolve(t, h, q)
			q = deliver.Request{Topic: topic, Cursor: start.Cursor(), HasCursor: true}
		}
		msgs, res := poll(t, h, deliver.PollRequest{Start: resolve(t, h, q)})
		if len(msgs) != 2 || msgs[0].Offset != 3 || res.End {
			t.Fatalf("by %s: %v %+v", by, msgs, res)
		}
		next := resolve(t, h, deliver.Request{Topic: topic, Cursor: res.Cursor, HasCursor: true})
		if next.Gap == nil || next.Gap.Requested != "0:5" || next.Gap.Earliest != "0:8" {
			t.Errorf("by %s: the next poll begins at %v with the gap %+v", by, next.Places, next.Gap)
		}
	}
}

func TestPollWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{})
		m.Append(topic.Ref(0), "")
		start := resolve(t, h, deliver.Request{Topic: topic, From: "earliest"})
		m.Serve(topic.Ref(0), false)
		began := time.Now()
		if _, err := h.Poll(t.Context(), deliver.PollRequest{Start: start}); !fault.Is(err, fault.LeaderUnavailable) || time.Since(began) < 5*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		if m.Reads() > 60 {
			t.Fatalf("%d reads in 5 s are a spin", m.Reads())
		}
		time.AfterFunc(2*time.Second, func() { m.Serve(topic.Ref(0), true) })
		if msgs, _ := poll(t, h, deliver.PollRequest{Start: start}); len(msgs) != 1 {
			t.Fatalf("%v", msgs)
		}
	})
}
