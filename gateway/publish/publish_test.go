package publish

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct{ snapshot *cluster.Snapshot }

func (w world) Snapshot() *cluster.Snapshot { return w.snapshot }

func (world) CatchUp(context.Context) {}

// orders has one topic "orders" of two partitions.
func orders() world {
	t := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders", Generation: 1, Settings: cluster.Settings{MaxMessageBytes: 1000}}
	half := ident.HashSpace / 2
	t.Partitions = []cluster.Partition{
		{Index: 0, Range: ident.HashRange{Lo: 0, Hi: half}, State: cluster.Open},
		{Index: 1, Range: ident.HashRange{Lo: half, Hi: ident.HashSpace}, State: cluster.Open},
	}
	return world{&cluster.Snapshot{
		Topics: map[string]*cluster.Topic{"orders": t},
		ByID:   map[ident.TopicID]*cluster.Topic{t.ID: t},
	}}
}

// leader keeps batches in memory. It answers when the test says so, or at once.
type leader struct {
	mu      sync.Mutex
	hold    bool  // keep answers back
	refuse  error // answer with this
	held    []func()
	batches [][]string // values, in the order of arrival
	next    map[ident.Partition]ident.Offset
	kept    map[string]int
}

func newLeader() *leader {
	return &leader{next: map[ident.Partition]ident.Offset{}, kept: map[string]int{}}
}

func (l *leader) Append(req rpc.Append, done func(rpc.Appended)) {
	l.mu.Lock()
	if l.refuse != nil {
		err := l.refuse
		l.mu.Unlock()
		done(rpc.Appended{Err: err})
		return
	}
	var a rpc.Appended
	var values []string
	it := req.Batch.Entries()
	for it.Next() {
		e := it.Entry()
		if e.Void {
			a.Records = append(a.Records, rpc.RecordResult{Offset: -1})
			values = append(values, fmt.Sprint("void ", e.Sequence))
			continue
		}
		a.Records = append(a.Records, rpc.RecordResult{Offset: l.next[req.Partition], Timestamp: 1})
		l.next[req.Partition]++
		l.kept[string(e.Value)]++
		values = append(values, string(e.Value))
	}
	l.batches = append(l.batches, values)
	answer := func() { done(a) }
	if l.hold {
		l.held = append(l.held, answer)
		answer = func() {}
	}
	l.mu.Unlock()
	answer()
}

func (l *leader) release() {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (l *leader) set(refuse error, hold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse, l.hold = refuse, hold
}

func text(v string) record.Record {
	return record.Record{Value: []byte(v), ContentType: "text/plain"}
}

func zero() *ident.Index { i := ident.Index(0); return &i }

// results gathers what becomes of records by their value.
type results struct {
	mu sync.Mutex
	by map[string][]string
}

func (r *results) publish(p *Publisher, req Request) {
	name := string(req.Record.Value)
	p.Publish(req, func(res Result) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.by == nil {
			r.by = map[string][]string{}
		}
		said := fmt.Sprint("offset ", res.Offset)
		if res.Err != nil {
			said = fault.KindOf(res.Err).Code()
		}
		r.by[name] = append(r.by[name], said)
	})
}

func (r *results) of(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.by[name], ", ")
}

func TestWhatArrivesMeanwhileBecomesTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newLeader(), &results{}
		l.hold = true
		p := New(Config{Topology: orders(), Leader: l})
		for _, v := range []string{"a", "b", "c"} {
			r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(v)})
		}
		l.release()
		l.release()
		if fmt.Sprint(l.batches) != "[[a] [b c]]" || r.of("c") != "offset 2" {
			t.Fatalf("batches %v, c is %s", l.batches, r.of("c"))
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALeaderThatComesLateLosesAndDoublesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newLeader(), &results{}
		l.refuse = fault.New(fault.LeaderUnavailable, "not yet")
		p := New(Config{Topology: orders(), Leader: l})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("short"), Timeout: 50 * time.Millisecond})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("long")})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("short too"), Timeout: 50 * time.Millisecond})
		time.Sleep(time.Second)
		if r.of("short") != "leader-unavailable" || r.of("short too") != "leader-unavailable" || r.of("long") != "" {
			t.Fatalf("%v", r.by)
		}
		l.set(nil, false)
		time.Sleep(time.Second)
		if r.of("long") != "offset 0" || fmt.Sprint(l.kept) != "map[long:1]" {
			t.Fatalf("results %v, kept %v: what was told that nothing was kept must not be kept later", r.by, l.kept)
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALeaderWithTooMuchToDoIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newLeader(), &results{}
		l.refuse = fault.New(fault.Throttled, "too much waits for the disk")
		p := New(Config{Topology: orders(), Leader: l})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("short"), Timeout: 50 * time.Millisecond})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("long")})
		time.Sleep(time.Second)
		l.set(nil, false)
		time.Sleep(time.Second)
		if r.of("short") != "throttled" || r.of("long") != "offset 0" {
			t.Fatalf("%v", r.by)
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALeaderThatNeverAnswersIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newLeader(), &results{}
		l.hold = true
		p := New(Config{Topology: orders(), Leader: l})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("sent"), Timeout: time.Second})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("waits"), Timeout: time.Second})
		time.Sleep(1100 * time.Millisecond)
		if r.of("sent") != "unknown-outcome" || r.of("waits") != "leader-unavailable" {
			t.Fatalf("%v", r.by)
		}
		l.release()
		if r.of("sent") != "unknown-outcome" || l.kept["waits"] != 0 {
			t.Fatalf("answered twice, or kept after all: %v, %v", r.by, l.kept)
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What waiting does not mend is said at once, in the leader's words.
func TestADamagedPartitionIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader()
		l.refuse = fault.New(fault.LeaderUnavailable, "damaged from offset 7 on").Lasts()
		p := New(Config{Topology: orders(), Leader: l})
		began := time.Now()
		p.Publish(Request{Topic: "orders", Record: text("a")}, func(r Result) {
			if !fault.Lasting(r.Err) || r.Err.Error() != "damaged from offset 7 on" || time.Since(began) > 0 {
				t.Errorf("after %s: %v", time.Since(began), r.Err)
			}
		})
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRefusals(t *testing.T) {
	seven := ident.Index(7)
	key := []byte("k") // which of the two owns it does not matter: the other is wrong
	wrong := ident.Index(0)
	if ident.KeyHash(key) < 1<<31 {
		wrong = 1
	}
	for name, c := range map[string]struct {
		req  Request
		want fault.Kind
	}{
		"no such topic":     {Request{Topic: "x", Record: text("a")}, fault.TopicNotFound},
		"the cluster's own": {Request{Topic: "_alerts", Record: text("a")}, fault.ReservedName},
		"no such partition": {Request{Topic: "orders", Partition: &seven, Record: text("a")}, fault.PartitionNotFound},
		"wrong partition":   {Request{Topic: "orders", Partition: &wrong, Record: record.Record{Key: key, Value: []byte("a")}}, fault.WrongPartition},
		"too large":         {Request{Topic: "orders", Record: text(strings.Repeat("x", 1001))}, fault.MessageTooLarge},
	} {
		l := newLeader()
		calls := 0
		New(Config{Topology: orders(), Leader: l}).Publish(c.req, func(r Result) {
			calls++
			if !fault.Is(r.Err, c.want) {
				t.Errorf("%s: %v", name, r.Err)
			}
		})
		if calls != 1 || len(l.batches) != 0 {
			t.Errorf("%s: %d answers, %d batches", name, calls, len(l.batches))
		}
	}
}

func TestASequencedRecordRefusedForWhatItIsUsesItsNumberUp(t *testing.T) {
	l := newLeader()
	r := text(strings.Repeat("x", cluster.MaxMessageBytes+1)) // below that the leader judges: it may be a repeat
	r.Producer, r.Sequence = ident.ProducerID{1}, 4
	New(Config{Topology: orders(), Leader: l}).Publish(Request{Topic: "orders", Partition: zero(), Record: r}, func(res Result) {
		if !fault.Is(res.Err, fault.MessageTooLarge) {
			t.Error(res.Err)
		}
	})
	if fmt.Sprint(l.batches) != "[[void 4]]" {
		t.Fatal(l.batches)
	}
}

func TestAcksNoneIsAnsweredAtOnce(t *testing.T) {
	l, r := newLeader(), &results{}
	l.hold = true
	p := New(Config{Topology: orders(), Leader: l})
	r.publish(p, Request{Topic: "orders", Partition: zero(), Acks: rpc.AcksNone, Record: text("a")})
	if r.of("a") != "offset -1" {
		t.Fatal(r.by)
	}
	l.release()
	if r.of("a") != "offset -1" || l.kept["a"] != 1 {
		t.Fatal("kept once, answered once:", r.by, l.kept)
	}
}

func TestTheBudgetHoldsBackAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newLeader(), &results{}
		l.hold = true
		p := New(Config{Topology: orders(), Leader: l, InFlightBytes: 1200})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("first")})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("second")})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("third"), Timeout: time.Second}) // blocks for its second
		if r.of("third") != "throttled" {
			t.Fatal(r.by)
		}
		l.set(nil, false)
		l.release()
		if r.of("second") != "offset 1" {
			t.Fatal(r.by)
		}
		if err := p.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.publish(p, Request{Topic: "orders", Record: text("late")})
		if r.of("late") != "draining" {
			t.Fatal(r.by)
		}
	})
}

// A topic that this node has yet to hear of is found out about before a record is refused.
func TestATopicMadeAMomentAgoElsewhereTakesRecords(t *testing.T) {
	w := orders()
	now := &world{&cluster.Snapshot{}}
	late := &memlog.Late{Now: now}
	late.Miss()
	now.snapshot = w.snapshot
	p, r := New(Config{Topology: late, Leader: newLeader()}), &results{}
	r.publish(p, Request{Topic: "orders", Record: text("there")})
	r.publish(p, Request{Topic: "orders", Record: text("again")})
	if got := r.of("there") + ", " + r.of("again"); got != "offset 0, offset 0" || late.Caught() != 1 { // in two partitions
		t.Errorf("%s, after %d", got, late.Caught())
	}
	r.publish(p, Request{Topic: "nothing", Record: text("nowhere")})
	if got := r.of("nowhere"); got != "topic-not-found" || late.Caught() != 2 {
		t.Errorf("%s, after %d", got, late.Caught())
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}
