package publish

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// window is a leader that knows producers: a log in memory, and what it was told
// to do wrong with the next tries, in order.
type window struct {
	mu     sync.Mutex
	log    []kept
	next   map[ident.ProducerID]int64
	places map[string]ident.Offset
	plan   []fate
	ids    map[ident.ProducerID]bool // every producer that was ever kept
	sizes  []int                     // of the batches that came
	acked  ident.Offset              // up to where it has answered
	full   bool                      // there is no room for another producer
}

type kept struct {
	value    string
	producer ident.ProducerID
	sequence int64
}

// fate is what becomes of one try.
type fate struct {
	before error        // refused with this
	after  error        // kept, and answered with this
	forget bool         // the leader first forgets all producers
	full   bool         // and from here on it has no room for others than those it knows
	cut    ident.Offset // and loses all but so many records; 0: none, -1: what it has not acknowledged
	silent bool         // kept, and never answered
}

func newWindow(plan ...fate) *window {
	return &window{next: map[ident.ProducerID]int64{}, places: map[string]ident.Offset{}, ids: map[ident.ProducerID]bool{}, plan: plan}
}

func (w *window) Append(req rpc.Append, done func(rpc.Appended)) {
	w.mu.Lock()
	a, answer := w.append(req)
	w.mu.Unlock()
	if answer {
		done(a)
	}
}

func (w *window) append(req rpc.Append) (rpc.Appended, bool) {
	var f fate
	if len(w.plan) > 0 {
		f, w.plan = w.plan[0], w.plan[1:]
	}
	w.sizes = append(w.sizes, req.Batch.Header().Entries)
	switch {
	case f.cut > 0:
		w.cut(f.cut)
	case f.cut < 0:
		w.cut(w.acked)
	}
	if f.forget {
		clear(w.next)
	}
	w.full = w.full || f.full
	if f.before != nil {
		return rpc.Appended{Err: f.before}, true
	}
	var a rpc.Appended
	it := req.Batch.Entries()
	for it.Next() {
		a.Records = append(a.Records, w.judge(it.Entry()))
	}
	req.Batch.Assign(record.Place{Partition: req.Partition, Epoch: 1, Base: 1, Timestamp: 1}) // a leader writes to its bytes
	if f.after != nil {
		return rpc.Appended{Err: f.after}, true
	}
	if f.silent {
		return a, false
	}
	w.acked = ident.Offset(len(w.log))
	return a, true
}

func (w *window) judge(e *record.Entry) rpc.RecordResult {
	if e.Producer.IsZero() {
		if !w.full {
			panic("a record without a number")
		}
		o := ident.Offset(len(w.log))
		w.log = append(w.log, kept{value: string(e.Value)})
		return rpc.RecordResult{Offset: o, Timestamp: 1}
	}
	next, known := w.next[e.Producer]
	key := fmt.Sprint(e.Producer, e.Sequence)
	switch {
	case !known && e.Sequence > 0:
		return rpc.RecordResult{Err: fault.New(fault.UnknownProducer, "unknown")}
	case !known && w.full:
		return rpc.RecordResult{Err: fault.New(fault.Limit, "too many")}
	case e.Sequence > next:
		return rpc.RecordResult{Err: fault.New(fault.OutOfOrderSequence, "expected %d", next)}
	case e.Sequence < next:
		return rpc.RecordResult{Offset: w.places[key], Timestamp: 1, Duplicate: true}
	}
	o := ident.Offset(len(w.log))
	w.log = append(w.log, kept{string(e.Value), e.Producer, e.Sequence})
	w.next[e.Producer], w.places[key], w.ids[e.Producer] = e.Sequence+1, o, true
	return rpc.RecordResult{Offset: o, Timestamp: 1}
}

// cut is a failover that lost the end of the log, and what it said of producers.
func (w *window) cut(end ident.Offset) {
	w.log = w.log[:min(int(end), len(w.log))]
	clear(w.next)
	for _, k := range w.log {
		if !k.producer.IsZero() {
			w.next[k.producer] = k.sequence + 1
		}
	}
}

func (w *window) values() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, k := range w.log {
		out = append(out, k.value)
	}
	return strings.Join(out, " ")
}

// producers is how many ever had something kept.
func (w *window) producers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids)
}

var (
	absent  = fault.New(fault.LeaderUnavailable, "no leader")
	too     = fault.New(fault.NotEnoughReplicas, "too few")
	broken  = fault.New(fault.UnknownOutcome, "the connection broke")
	fenced  = fault.New(fault.Fenced, "another epoch")
	leaving = fault.New(fault.Draining, "another leads soon")
)

// Whatever becomes of a try: the record is kept once, and its client hears of
// nothing but its place.
func TestARetryOfWhatMayBeKeptKeepsItOnce(t *testing.T) {
	for name, plan := range map[string][]fate{
		"the answer was lost":         {{after: broken}},
		"lost twice":                  {{after: broken}, {after: broken}},
		"nothing came, then lost":     {{before: broken}, {after: broken}},
		"kept, then no leader":        {{after: broken}, {before: absent}, {before: fenced}, {before: too}, {before: leaving}},
		"no leader, then kept":        {{before: absent}, {before: leaving}, {after: broken}},
		"forgotten at the first try":  {{}, {forget: true}},
		"a failover lost what it had": {{}, {}, {cut: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, r := newWindow(plan...), &results{}
				p := New(Config{Topology: orders(), Leader: l})
				want := []string{}
				for i := range 5 {
					v := fmt.Sprint("v", i)
					r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(v)})
					time.Sleep(time.Second)
					if name != "a failover lost what it had" || i != 1 {
						want = append(want, v)
					}
					if got := r.of(v); !strings.HasPrefix(got, "offset ") {
						t.Errorf("%s: %s", v, got)
					}
				}
				if got := l.values(); got != strings.Join(want, " ") {
					t.Errorf("kept %q, want %q", got, want)
				}
			})
		})
	}
}

func TestWhatWasRefusedUntilItsTimeWasUpIsNeverKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newWindow(), &results{}
		l.plan = append(l.plan, fate{})
		for range 20 {
			l.plan = append(l.plan, fate{before: too})
		}
		p := New(Config{Topology: orders(), Leader: l})
		publish := func(v string, timeout time.Duration) {
			r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(v), Timeout: timeout})
		}
		publish("first", time.Second)
		publish("short", 50*time.Millisecond) // under way alone
		publish("waits", 50*time.Millisecond)
		publish("long", 10*time.Second)
		publish("last", 10*time.Second)
		time.Sleep(9 * time.Second)
		if got := r.of("short") + ", " + r.of("waits") + ", " + r.of("long"); got != "not-enough-replicas, not-enough-replicas, offset 1" {
			t.Error(got)
		}
		if got := l.values(); got != "first long last" || l.producers() != 1 {
			t.Errorf("kept %q by %d producers", got, l.producers())
		}
	})
}

// After a try that may have reached a log, time that is up is an unknown
// outcome; what comes next is numbered by another producer, and kept.
func TestWhatMayBeKeptWhenItsTimeIsUpIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newWindow(fate{before: broken}), &results{}
		for range 100 {
			l.plan = append(l.plan, fate{before: absent})
		}
		p := New(Config{Topology: orders(), Leader: l})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("a"), Timeout: time.Second})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("b"), Timeout: time.Second})
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("c"), Timeout: time.Minute})
		time.Sleep(30 * time.Second)
		if got := r.of("a") + ", " + r.of("b") + ", " + r.of("c"); got != "unknown-outcome, leader-unavailable, offset 0" {
			t.Error(got)
		}
		if got := l.values(); got != "c" {
			t.Errorf("kept %q", got)
		}
	})
}

func TestAnIdleLaneTakesAnotherIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newWindow(), &results{}
		p := New(Config{Topology: orders(), Leader: l})
		for i, pause := range []time.Duration{0, 59 * time.Second, 61 * time.Second} {
			time.Sleep(pause)
			r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(fmt.Sprint(i))})
		}
		if l.values() != "0 1 2" || l.producers() != 2 {
			t.Errorf("kept %q by %d producers", l.values(), l.producers())
		}
	})
}

func TestABatchHoldsNoMoreOfALaneThanALeaderRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newWindow(fate{before: absent}), &results{}
		p := New(Config{Topology: orders(), Leader: l})
		for i := range 3000 {
			r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(fmt.Sprint(i))})
		}
		time.Sleep(time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.log) != 3000 || len(l.ids) != 1 || fmt.Sprint(l.sizes) != "[1 1 1024 1024 951]" {
			t.Errorf("kept %d by %d producers in batches of %v", len(l.log), len(l.ids), l.sizes)
		}
	})
}

// A topic that is deleted under a batch is that, whatever became of the batch.
func TestADeletedTopicIsNotFound(t *testing.T) {
	for name, f := range map[string]fate{"refused": {before: absent}, "perhaps kept": {after: broken}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l, r := newChanging(), newWindow(f, f, f, f), &results{}
				p := New(Config{Topology: c, Leader: l})
				r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("a")})
				c.Publish(&cluster.Snapshot{Index: 9})
				time.Sleep(time.Second)
				if got := r.of("a"); got != "topic-not-found" {
					t.Error(got)
				}
			})
		})
	}
}

// A record that nobody numbered needs no producer to be kept: where a leader has no room
// for another one it goes without, and is told what becomes of it once.
func TestALeaderWithTooManyProducersKeepsWhatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newWindow(fate{full: true}), &results{}
		p := New(Config{Topology: orders(), Leader: l})
		publish := func(v string) {
			r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text(v), Timeout: 5 * time.Second})
		}
		for _, v := range []string{"a", "b", "c"} {
			publish(v)
		}
		sequenced := text("d")
		sequenced.Producer = ident.ProducerID{9}
		r.publish(p, Request{Topic: "orders", Partition: zero(), Record: sequenced})
		synctest.Wait()
		if got := r.of("a") + ", " + r.of("b") + ", " + r.of("c") + ", " + r.of("d"); got != "offset 0, offset 1, offset 2, limit" {
			t.Error(got)
		}
		// Its answer is lost: another try might keep it twice.
		l.mu.Lock()
		l.plan = []fate{{after: broken}, {before: absent}}
		l.mu.Unlock()
		publish("e")
		publish("f") // refused first: nothing of it was kept
		time.Sleep(time.Second)
		if got := r.of("e") + ", " + r.of("f"); got != "unknown-outcome, offset 4" || l.values() != "a b c e f" {
			t.Errorf("%s; kept %q", got, l.values())
		}
		// There is room again.
		l.mu.Lock()
		l.full = false
		l.mu.Unlock()
		time.Sleep(bareFor)
		publish("g")
		synctest.Wait()
		if got := r.of("g"); got != "offset 5" || l.producers() != 1 {
			t.Errorf("%s; kept by %d producers", got, l.producers())
		}
	})
}

// changing is a topology whose leader moves.
type changing struct{ *feed.Feed }

func (changing) CatchUp(context.Context) {}

func newChanging() changing {
	s := orders().snapshot
	s.Index = 1
	c := changing{feed.New()}
	c.Publish(s)
	return c
}

// change changes partition 0.
func (c changing) change(f func(*cluster.Partition)) {
	next := *c.Snapshot()
	next.Index++
	t := *next.Topics["orders"]
	t.Modified = next.Index
	t.Partitions = append([]cluster.Partition(nil), t.Partitions...)
	f(&t.Partitions[0])
	next.Topics, next.ByID = maps.Clone(next.Topics), maps.Clone(next.ByID)
	next.Topics["orders"], next.ByID[t.ID] = &t, &t
	c.Publish(&next)
}

// A leader that fell silent holds a batch up until there is another, and then no
// longer; what the first kept is found again.
func TestANewLeaderIsAskedAtOnce(t *testing.T) {
	for name, first := range map[string]fate{
		"after silence":   {silent: true},
		"after a refusal": {before: absent},
		"in sync again":   {before: too},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l, r := newChanging(), newWindow(first), &results{}
				p := New(Config{Topology: c, Leader: l, Changes: c})
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					if err := p.Run(ctx); err != nil {
						t.Error(err)
					}
				}()
				if first.before != nil { // pauses have grown long
					for range 8 {
						l.plan = append(l.plan, first)
					}
				}
				synctest.Wait()
				r.publish(p, Request{Topic: "orders", Partition: zero(), Record: text("a")})
				time.Sleep(160 * time.Millisecond) // in the middle of a pause
				synctest.Wait()
				if got := r.of("a"); got != "" {
					t.Fatal("answered already:", got)
				}
				l.mu.Lock()
				l.plan = nil
				l.mu.Unlock()
				if name == "in sync again" {
					c.change(func(p *cluster.Partition) { p.Version++ })
				} else {
					c.change(func(p *cluster.Partition) { p.LeaderEpoch++ })
				}
				synctest.Wait() // no time passes
				if got := r.of("a"); got != "offset 0" || l.values() != "a" {
					t.Errorf("answered %q, kept %q", got, l.values())
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// Whatever leaders do: a record is told one thing; kept means that it stands
// once at its place, refused that it stands nowhere, unknown at most once; and
// what was kept stands in the order in which it came.
func TestALanesPromises(t *testing.T) {
	errs := []error{absent, too, fenced, leaving, broken, fault.New(fault.Throttled, "busy"), fault.New(fault.DiskFull, "full")}
	rapid.Check(t, func(rt *rapid.T) {
		l := newWindow()
		for range rapid.IntRange(0, 40).Draw(rt, "tries") {
			var f fate
			switch rapid.IntRange(0, 5).Draw(rt, "fate") {
			case 0, 1:
				f.before = rapid.SampledFrom(errs).Draw(rt, "before")
			case 2:
				f.after = broken
			case 3:
				f.before, f.cut = absent, -1
			case 4:
				f.full = rapid.IntRange(0, 3).Draw(rt, "crowded") == 0
			}
			l.plan = append(l.plan, f)
		}
		type record struct {
			timeout, pause time.Duration
			acks           rpc.Acks

			mu     sync.Mutex
			err    error
			offset ident.Offset
			times  int
		}
		ms := func(least, most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(rt, what)) * time.Millisecond
		}
		records := make([]*record, rapid.IntRange(1, 30).Draw(rt, "records"))
		for i := range records {
			acks := rapid.SampledFrom([]rpc.Acks{rpc.AcksAll, rpc.AcksAll, rpc.AcksLeader, rpc.AcksNone}).Draw(rt, "acks")
			records[i] = &record{timeout: ms(1, 300, "timeout"), pause: ms(0, 20, "pause"), acks: acks}
		}
		synctest.Test(t, func(*testing.T) {
			p := New(Config{Topology: orders(), Leader: l})
			for i, k := range records {
				p.Publish(Request{Topic: "orders", Partition: zero(), Record: text(fmt.Sprint(i)), Timeout: k.timeout, Acks: k.acks}, func(r Result) {
					k.mu.Lock()
					defer k.mu.Unlock()
					k.err, k.offset = r.Err, r.Offset
					if k.times++; r.Duplicate {
						k.times = 1000
					}
				})
				time.Sleep(k.pause)
			}
			if err := p.Drain(context.Background()); err != nil {
				panic(err)
			}
			synctest.Wait()
		})
		at := map[string][]int{}
		for i, k := range l.log {
			at[k.value] = append(at[k.value], i)
		}
		last := -1
		for i, k := range records {
			switch stands := at[fmt.Sprint(i)]; {
			case k.times != 1:
				rt.Errorf("record %d was answered %d times, or as a duplicate", i, k.times)
			case len(stands) > 1:
				rt.Errorf("record %d stands at %v", i, stands)
			case k.err == nil && k.offset >= 0 && (len(stands) != 1 || stands[0] != int(k.offset)):
				rt.Errorf("record %d was kept at %d, and stands at %v", i, k.offset, stands)
			case k.err != nil && !fault.Is(k.err, fault.UnknownOutcome) && len(stands) > 0:
				rt.Errorf("record %d was told %v, and stands at %v", i, k.err, stands)
			case len(stands) == 1 && stands[0] < last:
				rt.Errorf("record %d stands before one that came earlier", i)
			case len(stands) == 1:
				last = stands[0]
			}
		}
	})
}
