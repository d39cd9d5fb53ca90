package groups_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidewire/gateway/group"
	"tidewire/gateway/groups"
	"tidewire/gateway/pulse"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memgroup"
	"tidewire/internal/testkit/memlog"
	"tidewire/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	here = ident.NodeID{1} // leads all there is, until somebody else does
	far  = ident.NodeID{2}
)

// world is a gateway over a cluster in memory.
type world struct {
	t *testing.T
	*memgroup.Cluster
	log    *memlog.Broker
	late   *memlog.Late // what the gateway has heard of
	topic  *cluster.Topic
	garble func(*rpc.Taken) // what comes of takes; nil: it stays as it is
	groups *groups.Groups
}

func newWorld(t *testing.T, partitions int) *world {
	log := memlog.New()
	topic := log.Topic("orders", partitions)
	w := newWorldOf(t, memgroup.New(log), log)
	w.topic = topic
	return w
}

// newWorldOf is a gateway over a cluster that others are over too.
func newWorldOf(t *testing.T, of *memgroup.Cluster, log *memlog.Broker) *world {
	w := &world{t: t, Cluster: of, log: log, late: &memlog.Late{Now: of}}
	p := pulse.New(w.Touch)
	w.groups = groups.New(groups.Config{
		Self: here, Topology: w.late, Changes: w, Places: w.log, Propose: w.Propose, Pulse: p,
		Broker: func(id ident.NodeID) (groups.Broker, error) { return garbling{w.Broker(id), w}, nil },
	})
	activity.Start(t, p.Run)
	activity.Start(t, w.groups.Run)
	return w
}

// garbling is a broker on whose way something befalls what was taken.
type garbling struct {
	*memgroup.Broker
	w *world
}

func (b garbling) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	taken, err := b.Broker.Take(ctx, t)
	if b.w.garble != nil {
		b.w.garble(&taken)
	}
	return taken, err
}

// keep appends n records to a partition.
func (w *world) keep(i ident.Index, n int) {
	for range n {
		w.log.Append(w.topic.Ref(i), "k")
	}
}

func (w *world) register(settings string) {
	w.t.Helper()
	r, err := wire.ParseRegistration([]byte(`{"group":"g"` + settings + `}`))
	if err == nil {
		_, _, err = w.groups.Register(w.t.Context(), "orders", "g", r.GroupSettings)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) join(member string) groups.Membership {
	w.t.Helper()
	m, err := w.groups.Join(w.t.Context(), "orders", "g", member)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func caller(m groups.Membership) groups.Caller {
	return groups.Caller{Topic: "orders", Group: "g", Member: m.Member, Epoch: m.Epoch}
}

// fetch is what a fetch brought, as partition:offset:delivery.
func (w *world) fetch(m groups.Membership, limit int, wait time.Duration) (string, error) {
	got, err := w.groups.Messages(w.t.Context(), groups.Fetch{Caller: caller(m), Limit: limit, MaxBytes: 1 << 20, Wait: wait})
	return places(got.Lines), err
}

func places(lines [][]byte) string {
	var out []string
	for _, line := range lines {
		var m struct{ Partition, Offset, Delivery int }
		if err := json.Unmarshal(line, &m); err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprintf("%d:%d:%d", m.Partition, m.Offset, m.Delivery))
	}
	return strings.Join(out, " ")
}

func (w *world) want(want string, m groups.Membership, limit int, wait time.Duration) {
	w.t.Helper()
	if got, err := w.fetch(m, limit, wait); got != want || err != nil {
		w.t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func (w *world) settle(m groups.Membership, verb wire.Verb, of ...ident.Offset) (string, error) {
	var entries []wire.Entry
	for _, o := range of {
		entries = append(entries, wire.Entry{Verb: verb, Offset: o, Delay: -1})
	}
	done, err := w.groups.Settle(w.t.Context(), caller(m), entries)
	return fmt.Sprint(group.Told(done.Stale)), err
}

func TestWhatIsTakenIsSettledOrComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 4)
		w.register(`,"lease":"10s","backoff":"1s","max_deliveries":2`)
		m := w.join("")
		if m.Member == "" || fmt.Sprint(m.Assigned) != "{[0] []}" {
			t.Fatal(m.Assigned)
		}
		w.want("0:0:1 0:1:1", m, 2, 0)
		w.want("0:2:1 0:3:1", m, 9, 0)
		w.want("", m, 9, 0)
		for verb, o := range map[wire.Verb]ident.Offset{wire.Ack: 0, wire.Nack: 1, wire.Extend: 2, wire.Reject: 3} {
			if stale, err := w.settle(m, verb, o); stale != "[]" || err != nil {
				t.Error(verb, stale, err)
			}
		}
		w.want("", m, 9, 0)
		w.want("0:1:2", m, 9, 2*time.Second) // after its backoff
		if stale, err := w.settle(m, wire.Ack, 1, 2, 7); stale != "[{0 7 fenced}]" || err != nil {
			t.Error(stale, err)
		}
		stand := w.groups.Standings(t.Context(), m.View)
		if s := stand[0]; s.Committed != 4 || s.Lag != 0 || s.Dead != 1 || s.Redelivered != 1 {
			t.Errorf("%+v", stand)
		}
		for o, want := range map[ident.Offset]string{0: "processed", 3: "dead"} {
			if s, err := w.groups.Status(t.Context(), "orders", 0, o); err != nil || len(s) != 1 || s[0].Group != "g" || string(s[0].State) != want {
				t.Error(o, s, err)
			}
		}
		if _, err := w.groups.Status(t.Context(), "orders", 0, 4); !fault.Is(err, fault.OffsetNotFound) {
			t.Error(err)
		}
	})
}

// Who waits gets what comes at once, from whatever leader, and is alive while it waits.
func TestAWaitEndsWithTheFirstRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.Lead(w.topic.Ref(1), far)
		w.register(`,"session":"3s"`)
		m := w.join("a")
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { w.keep(1, 1) })
		w.want("1:0:1", m, 9, 20*time.Second)
		if took := time.Since(began); took != 10*time.Second {
			t.Error("took", took)
		}
		if n := len(w.Touched()); n < 10 {
			t.Errorf("%d signs of life in ten seconds", n)
		}
		began = time.Now()
		w.want("", m, 9, time.Second)
		if took := time.Since(began); took != time.Second {
			t.Error("took", took)
		}
		w.keep(0, 1)
		w.keep(1, 1)
		if got, err := w.fetch(m, 9, 0); err != nil || len(got) < 5 {
			t.Error(got, err) // one of both, or both
		}
	})
}

func TestWhoGivesUpHasLeasedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.register("")
		m := w.join("a")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		got, err := w.groups.Messages(ctx, groups.Fetch{Caller: caller(m), Limit: 9, MaxBytes: 1, Wait: time.Minute})
		w.keep(0, 1)
		synctest.Wait()
		if err != nil || len(got.Lines) > 0 || w.Calls("take") != 0 {
			t.Error(got, err, w.Calls("take"))
		}
		// No room, no lease.
		full := fault.New(fault.Throttled, "no room")
		if _, err := w.groups.Messages(t.Context(), groups.Fetch{Caller: caller(m), Limit: 9, MaxBytes: 1, Wait: time.Second, Reserve: func(context.Context) error { return full }}); !fault.Is(err, fault.Throttled) || w.Calls("take") != 0 {
			t.Error(err)
		}
		// Who leaves while he waits for room, neither.
		left, leave := context.WithCancel(t.Context())
		got, err = w.groups.Messages(left, groups.Fetch{Caller: caller(m), Limit: 9, MaxBytes: 1, Wait: time.Second, Reserve: func(context.Context) error { leave(); return nil }})
		if err != nil || len(got.Lines) > 0 || w.Calls("take") != 0 {
			t.Error(got, err)
		}
		w.want("0:0:1", m, 9, 0)
	})
}

func TestOnlyTheLatestLifeIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 1)
		w.register("")
		first := w.join("a")
		second := w.join("a")
		for name, err := range map[string]error{
			"messages":  last(w.fetch(first, 9, 0)),
			"settle":    last(w.settle(first, wire.Ack, 0)),
			"heartbeat": last(w.groups.Heartbeat(t.Context(), caller(first), true, nil)),
			"leave":     w.groups.Leave(t.Context(), caller(first)),
		} {
			if !fault.Is(err, fault.Fenced) {
				t.Error(name, err)
			}
		}
		if a, err := w.groups.Heartbeat(t.Context(), caller(second), true, []ident.Index{0}); err != nil || fmt.Sprint(a) != "{[0] []}" {
			t.Error(a, err)
		}
		// A life that this gateway has yet to hear of is waited for.
		later := caller(second)
		later.Epoch = ident.MemberEpoch(w.Snapshot().Index + 5)
		began := time.Now()
		if err := last(w.groups.Heartbeat(t.Context(), later, false, nil)); !fault.Is(err, fault.Fenced) || time.Since(began) != 2*time.Second {
			t.Error(err, time.Since(began))
		}
		// Whoever is in no life here may have joined without its being known.
		later.Member = "b"
		if err := last(w.groups.Heartbeat(t.Context(), later, false, nil)); !fault.Is(err, fault.MemberNotFound) {
			t.Error(err)
		}
		w.Lapse("orders", "g", "a")
		if err := last(w.fetch(second, 9, 0)); !fault.Is(err, fault.Fenced) {
			t.Error(err)
		}
		nobody := caller(second)
		nobody.Epoch = 0
		if err := w.groups.Leave(t.Context(), nobody); !fault.Is(err, fault.MemberNotFound) {
			t.Error(err)
		}
	})
}

func last[T any](_ T, err error) error { return err }

func TestACallFollowsALeaderThatMoves(t *testing.T) {
	for name, c := range map[string]error{
		"gone":   fault.New(fault.LeaderUnavailable, "connection refused"),
		"silent": fault.New(fault.UnknownOutcome, "broken"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.keep(0, 2)
				w.register("")
				m := w.join("a")
				w.want("0:0:1", m, 1, 0)
				w.Fail(here, func(string) error { return c })
				time.AfterFunc(time.Second, func() { w.Lead(w.topic.Ref(0), far) })
				began := time.Now()
				if stale, err := w.settle(m, wire.Ack, 0); stale != "[]" || err != nil {
					t.Error(stale, err)
				}
				if s, err := w.groups.Status(t.Context(), "orders", 0, 0); err != nil || s[0].State != "processed" {
					t.Error(s, err)
				}
				w.want("0:1:1", m, 1, 5*time.Second)
				if took := time.Since(began); took != time.Second {
					t.Error("took", took)
				}
			})
		})
	}
}

// What is not known to be settled is never called so.
func TestAnOutcomeThatIsNotKnownIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.Lead(w.topic.Ref(1), far)
		w.keep(0, 1)
		w.register("")
		m := w.join("a")
		w.want("0:0:1", m, 1, 0)
		w.Fail(here, func(call string) error {
			if call == "settled" { // carried out, and the answer is lost
				return fault.New(fault.UnknownOutcome, "broken")
			}
			return nil
		})
		done, err := w.groups.Settle(t.Context(), caller(m), []wire.Entry{{Verb: wire.Ack}, {Verb: wire.Ack, Partition: 1, Offset: 8}})
		f := fault.As(err)
		if !fault.Is(err, fault.UnknownOutcome) || fmt.Sprint(f.Fields["partitions"]) != "[0]" || fmt.Sprint(group.Told(done.Stale)) != "[{1 8 fenced}]" {
			t.Error(done, err)
		}
		w.Fail(here, nil)
		if stale, err := w.settle(m, wire.Ack, 0); stale != "[]" || err != nil {
			t.Error("it may be said again:", stale, err)
		}
		w.Fail(here, func(string) error { return fault.New(fault.LeaderUnavailable, "none") })
		if _, err := w.settle(m, wire.Ack, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if done, err := w.groups.Settle(t.Context(), caller(m), []wire.Entry{{Verb: wire.Ack, Partition: 9}}); fmt.Sprint(group.Told(done.Stale)) != "[{9 0 partition-not-found}]" || err != nil {
			t.Error(done, err)
		}
		if err := last(w.fetch(m, 9, time.Second)); err != nil {
			t.Error("the other partition's leader has nothing, which is an answer:", err)
		}
		w.Fail(far, func(string) error { return fault.New(fault.LeaderUnavailable, "none") })
		for _, wait := range []time.Duration{0, time.Second} {
			if err := last(w.fetch(m, 9, wait)); !fault.Is(err, fault.LeaderUnavailable) {
				t.Error(err)
			}
		}
	})
}

// What was made at another gateway a moment ago is found by every call, and what is not
// there takes no time.
func TestWhatWasMadeAMomentAgoElsewhereIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		other := newWorldOf(t, w.Cluster, w.log) // which has heard of everything so far
		began := time.Now()
		for name, call := range map[string]func(group string) error{
			"join":   func(g string) error { return last(other.groups.Join(t.Context(), "orders", g, "a")) },
			"find":   func(g string) error { return last(other.groups.Find(t.Context(), "orders", g)) },
			"alter":  func(g string) error { return last(other.groups.Alter(t.Context(), "orders", g, cluster.GroupPatch{})) },
			"delete": func(g string) error { return other.groups.Delete(t.Context(), "orders", g) },
			"move": func(g string) error {
				return last(other.groups.Move(t.Context(), "orders", g, wire.GroupMove{From: "latest"}))
			},
		} {
			if err := call("h"); !fault.Is(err, fault.GroupNotFound) {
				t.Errorf("%s: %v", name, err)
			}
			other.late.Miss()
			w.register("")
			if err := call("g"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if name != "delete" {
				if err := w.groups.Delete(t.Context(), "orders", "g"); err != nil {
					t.Fatal(err)
				}
			}
		}
		other.late.Miss()
		w.register("")
		m := w.join("a")
		if err := other.groups.Leave(t.Context(), groups.Caller{Topic: "orders", Group: "g", Member: m.Member}); err != nil {
			t.Errorf("the member is not there: %v", err)
		}
		other.late.Miss()
		w.log.Topic("younger", 1)
		if _, _, err := other.groups.Register(t.Context(), "younger", "g", wire.GroupSettings{}); err != nil {
			t.Error(err)
		}
		if _, _, err := other.groups.Register(t.Context(), "nothing", "g", wire.GroupSettings{}); !fault.Is(err, fault.TopicNotFound) {
			t.Error(err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("all that took %s", d)
		}
	})
}

func TestPartitionsThatNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 1)
		w.register("")
		m := w.join("a")
		w.Lead(w.topic.Ref(0), ident.NodeID{})
		for _, wait := range []time.Duration{0, time.Second} {
			if err := last(w.fetch(m, 9, wait)); !fault.Is(err, fault.LeaderUnavailable) {
				t.Error(err)
			}
		}
		if _, err := w.settle(m, wire.Ack, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { w.Lead(w.topic.Ref(0), far) })
		w.want("0:0:1", m, 9, 5*time.Second)
	})
}

// outlet is where a member's deliveries go.
type outlet struct {
	mu    sync.Mutex
	limit int
	over  bool // with the next messages, which it does not take
	saw   []string
	woken chan struct{}
}

func (o *outlet) Room() (messages, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limit, 1 << 20
}

func (o *outlet) Woken() <-chan struct{} { return o.woken }

func (o *outlet) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.saw = append(o.saw, fmt.Sprintf(format, args...))
}

func (o *outlet) Assigned(gained, lost []ident.Index) { o.say("+%v-%v", gained, lost) }

func (o *outlet) Messages(lines [][]byte, _ int) bool {
	if len(lines) == 0 {
		return true
	}
	o.say("%s", places(lines))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limit -= len(lines); o.over {
		o.limit = 0
	}
	return !o.over
}

func (o *outlet) allow(n int) {
	o.mu.Lock()
	o.limit += n
	o.mu.Unlock()
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

func (o *outlet) heard() string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := strings.Join(o.saw, ", ")
	o.saw = nil
	return s
}

func (w *world) deliver(m groups.Membership, limit int) *outlet {
	o := &outlet{limit: limit, woken: make(chan struct{}, 1)}
	activity.Start(w.t, func(ctx context.Context) error {
		if err := w.groups.Deliver(ctx, m, o); err != nil {
			o.say("%s", fault.KindOf(err))
		}
		return nil
	})
	return o
}

func TestDeliveriesAreBoundedByTheRoomForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.Lead(w.topic.Ref(1), far)
		w.register("")
		w.keep(0, 3)
		a := w.deliver(w.join("a"), 2)
		if got := a.heard(); got != "0:0:1 0:1:1" {
			t.Error(got)
		}
		time.Sleep(20 * time.Second)
		if got := a.heard(); got != "" {
			t.Error(got)
		}
		a.allow(5)
		if got := a.heard(); got != "0:2:1" {
			t.Error(got)
		}
		w.keep(1, 2)
		if got := a.heard(); got != "1:0:1, 1:1:1" && got != "1:0:1 1:1:1" {
			t.Error(got)
		}
	})
}

func TestAMemberIsToldWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.register(`,"lease":"10s"`)
		w.keep(0, 1)
		w.keep(1, 1)
		m := w.join("a")
		a := w.deliver(m, 100)
		a.heard()
		second := w.join("b")
		b := w.deliver(second, 100)
		if got := a.heard() + " " + b.heard(); got != "+[]-[1] " {
			t.Error(got)
		}
		if done, err := w.groups.Settle(t.Context(), caller(m), []wire.Entry{{Verb: wire.Ack, Partition: 1}}); err != nil || len(done.Stale) > 0 {
			t.Error(done, err) // of a partition that it gives up
		}
		w.keep(1, 1)
		if got := a.heard() + b.heard(); got != "+[1]-[], 1:1:1" {
			t.Error(got)
		}
		if err := w.groups.End(t.Context(), second); err != nil {
			t.Error(err)
		}
		if got := b.heard(); got != "+[]-[1]" && got != "fenced" {
			t.Error(got)
		}
		if got := a.heard(); got != "+[1]-[], 1:1:2" {
			t.Error(got)
		}
		w.join("a")
		if got := a.heard(); got != "fenced" {
			t.Error(got)
		}
	})
}

func TestWhatIsLeftOutOfAHeartbeatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.register("")
		w.keep(0, 1)
		w.keep(1, 1)
		m := w.join("a")
		w.want("0:0:1 1:0:1", m, 9, 0)
		w.join("b")
		for _, c := range []struct {
			says  bool
			holds []ident.Index
			want  string
		}{
			{false, nil, "{[0] [1]}"},
			{true, []ident.Index{0, 1}, "{[0] [1]}"},
			{true, []ident.Index{0}, "{[0] []}"},
			{true, nil, "{[0] []}"}, // what it is not asked to give up stays its own
		} {
			if a, err := w.groups.Heartbeat(t.Context(), caller(m), c.says, c.holds); err != nil || fmt.Sprint(a) != c.want {
				t.Errorf("%+v: %v %v", c, a, err)
			}
		}
		w.Deafen(fault.New(fault.CoordinatorUnavailable, "none"))
		if err := last(w.groups.Heartbeat(t.Context(), caller(m), false, nil)); !fault.Is(err, fault.CoordinatorUnavailable) {
			t.Error(err)
		}
	})
}

func TestWhereAGroupBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.keep(0, 5)
		w.keep(1, 2)
		w.log.Retain(w.topic.Ref(0), 2)
		began := func(from string) string {
			r, _ := wire.ParseRegistration([]byte(`{"group":"x"` + from + `}`))
			v, created, err := w.groups.Register(t.Context(), "orders", "x", r.GroupSettings)
			if err != nil || !created {
				t.Fatal(err)
			}
			defer func() {
				if err := w.groups.Delete(t.Context(), "orders", "x"); err != nil {
					t.Error(err)
				}
			}()
			s := w.groups.Standings(t.Context(), v)
			return fmt.Sprint(s[0].Committed, s[1].Committed)
		}
		for from, want := range map[string]string{"": "2 0", `,"from":"earliest"`: "2 0", `,"from":"latest"`: "5 2", `,"from":"1970-01-01T00:00:00.004Z"`: "3 0"} {
			if got := began(from); got != want {
				t.Errorf("%s: %s, want %s", from, got, want)
			}
		}
	})
}

func TestAGroupIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.keep(0, 5)
		w.keep(1, 2)
		w.register("")
		move := func(body string) (string, error) {
			q, err := wire.ParseGroupMove([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			moves, err := w.groups.Move(t.Context(), "orders", "g", q)
			var out []string
			for _, m := range moves {
				out = append(out, fmt.Sprintf("%d: %d to %d", m.Partition, *m.From, m.To))
			}
			return strings.Join(out, ", "), err
		}
		if got, err := move(`{"from":"latest","dry_run":true}`); got != "0: 0 to 5, 1: 0 to 2" || err != nil {
			t.Error(got, err)
		}
		if got, err := move(`{"offsets":{"0":3}}`); got != "0: 0 to 3" || err != nil {
			t.Error(got, err)
		}
		if got, err := move(`{"from":"earliest","dry_run":true}`); got != "0: 3 to 0, 1: 0 to 0" || err != nil {
			t.Error(got, err)
		}
		w.join("a")
		if _, err := move(`{"from":"earliest"}`); !fault.Is(err, fault.GroupHasMembers) {
			t.Error(err)
		}
		if _, err := move(`{"from":"earliest","force":true}`); err != nil {
			t.Error(err)
		}
		w.log.Retain(w.topic.Ref(0), 2)
		for body, kind := range map[string]fault.Kind{`{"offsets":{"0":1}}`: fault.OffsetExpired, `{"offsets":{"1":3}}`: fault.OffsetNotFound, `{"offsets":{"7":0}}`: fault.PartitionNotFound} {
			if _, err := move(body); !fault.Is(err, kind) {
				t.Error(body, err)
			}
		}
	})
}

// Settlements that come while one is under way go together, in order, each with its answer.
func TestSettlementsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.keep(0, 50)
		w.register(`,"backoff":"0s"`)
		m := w.join("a")
		if _, err := w.fetch(m, 50, 0); err != nil {
			t.Fatal(err)
		}
		s := w.groups.Settler(m)
		var mu sync.Mutex
		var answers []string
		add := func(verb wire.Verb, o ident.Offset) {
			s.Add([]wire.Entry{{Verb: verb, Offset: o, Delay: -1}}, func(done group.Settled, err error) {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, fmt.Sprint(verb, " ", o, " ", len(done.Stale), " ", err))
			})
		}
		for o := range ident.Offset(49) {
			add(wire.Ack, o)
		}
		add(wire.Nack, 49)
		add(wire.Ack, 49) // it has been given back by then
		s.Wait()
		if n := w.Calls("settle"); n > 10 {
			t.Errorf("%d calls", n)
		}
		if len(answers) != 51 || answers[0] != "ack 0 0 <nil>" || answers[49] != "nack 49 0 <nil>" || answers[50] != "ack 49 1 <nil>" {
			t.Error(len(answers), answers[49:])
		}
	})
}
