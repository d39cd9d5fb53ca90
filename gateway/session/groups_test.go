package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/budget"
	"tidewire/gateway/groups"
	"tidewire/gateway/pulse"
	"tidewire/gateway/session"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memgroup"
)

// grouped is a node that serves groups.
type grouped struct {
	*node
	groups *memgroup.Cluster
	held   *budget.Budget
	topic  *cluster.Topic
}

func newGrouped(t *testing.T, partitions int, change ...func(*session.Config)) *grouped {
	t.Helper()
	g := &grouped{held: budget.New(1 << 20)}
	g.node = newNode(t, append([]func(*session.Config){func(c *session.Config) {
		log := c.Topology.(memgroup.Log)
		g.groups = memgroup.New(log)
		lives := pulse.New(g.groups.Touch)
		working := groups.New(groups.Config{
			Self: ident.NodeID{1}, Topology: g.groups, Changes: g.groups, Places: log.(groups.Places), Propose: g.groups.Propose, Pulse: lives,
			Broker: func(id ident.NodeID) (groups.Broker, error) { return g.groups.Broker(id), nil },
		})
		activity.Start(t, lives.Run)
		activity.Start(t, working.Run)
		c.Topology, c.Groups, c.Held = g.groups, working, g.held
	}}, change...)...)
	g.topic = g.Topic("orders", partitions)
	return g
}

func (g *grouped) keep(i ident.Index, n int) {
	for range n {
		g.Append(g.topic.Ref(i), "k")
	}
}

// join makes a client a member, and gives its subscription.
func (g *grouped) join(t *testing.T, c *client, more string) (sub string) {
	t.Helper()
	c.send(t, `{"op":"join","id":1,"topic":"orders","group":"g"`+more+`}`)
	o := c.want(t, "joined")
	if o.num("id") != 1 || o.str("member") == "" || o.num("epoch") == 0 || o["partitions"] == nil {
		t.Fatalf("%v", o)
	}
	return o.str("sub")
}

// leases are messages as partition:offset:delivery.
func leases(t *testing.T, list []object) string {
	t.Helper()
	var out []string
	for _, m := range list {
		if m.num("lease_ms") == 0 || m.str("lease_until") == "" {
			t.Errorf("%v", m)
		}
		out = append(out, fmt.Sprintf("%d:%d:%d", m.num("partition"), m.num("offset"), m.num("delivery")))
	}
	return strings.Join(out, " ")
}

// epoch is the member's, as the cluster has it; 0: it is none.
func (g *grouped) epoch(member string) ident.MemberEpoch {
	if of := g.groups.Snapshot().Groups[g.topic.ID].Get("g"); of != nil {
		if m, ok := of.Member(member); ok {
			return m.Epoch
		}
	}
	return 0
}

func TestAMemberWorksOverAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		g.keep(0, 4)
		c := g.open(t)
		c.send(t, `{"op":"join","id":1,"topic":"orders","group":"g"}`)
		if o := c.want(t, "error"); o.str("code") != "group-not-found" {
			t.Error(o)
		}
		sub := g.join(t, c, `,"member":"w1","mode":"exclusive","from":"earliest","max_deliveries":2,"backoff":"1s"`)
		if got := leases(t, c.messages(t, 4)); got != "0:0:1 0:1:1 0:2:1 0:3:1" {
			t.Error(got)
		}
		say := func(format string, args ...any) { c.send(t, fmt.Sprintf(format, args...)) }
		say(`{"op":"ack","id":2,"sub":%q,"partition":0,"offset":0}`, sub)
		say(`{"op":"nack","sub":%q,"partition":0,"offset":1,"delay":"2s"}`, sub)
		say(`{"op":"extend","id":3,"sub":%q,"partition":0,"offsets":[2,9]}`, sub)
		say(`{"op":"reject","id":4,"sub":%q,"partition":0,"offset":3,"reason":"broken"}`, sub)
		for id := 2; id <= 4; id++ {
			o := c.want(t, "acked")
			want := "<nil>"
			if id == 3 {
				want = "[map[offset:9 partition:0 reason:fenced]]"
			}
			if o.num("id") != id || o.str("sub") != sub || fmt.Sprint(o["stale"]) != want {
				t.Error(o)
			}
		}
		began := time.Now()
		if got := leases(t, c.messages(t, 1)); got != "0:1:2" || time.Since(began) != 2*time.Second {
			t.Error(got, time.Since(began))
		}
		say(`{"op":"ack","id":5,"sub":%q,"partition":0,"through":2}`, sub)
		if o := c.want(t, "acked"); o.num("id") != 5 || o["stale"] != nil {
			t.Error(o)
		}
		say(`{"op":"leave","id":6,"sub":%q}`, sub)
		if o := c.want(t, "left"); o.num("id") != 6 || g.epoch("w1") != 0 {
			t.Error(o)
		}
		say(`{"op":"ack","id":7,"sub":%q,"partition":0,"offset":0}`, sub)
		if o := c.want(t, "error"); o.str("field") != "sub" {
			t.Error(o)
		}
	})
}

func TestSettingsOfAGroupThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		c := g.open(t)
		g.join(t, c, `,"lease":"20s"`)
		g.join(t, c, `,"lease":"20s"`)
		c.send(t, `{"op":"join","id":2,"topic":"orders","group":"g","lease":"21s"}`)
		if o := c.want(t, "error"); o.str("code") != "group-exists" {
			t.Error(o)
		}
		c.send(t, `{"op":"unsubscribe","id":3,"sub":"s1"}`)
		if o := c.want(t, "error"); !strings.Contains(o.str("detail"), "leave") {
			t.Error(o)
		}
		g.join(t, c, "")
		g.join(t, c, "")
		c.send(t, `{"op":"join","id":4,"topic":"orders","group":"g"}`)
		if o := c.want(t, "error"); o.str("limit") != "max_subscriptions" {
			t.Error(o)
		}
	})
}

func TestCreditBoundsWhatIsLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		g.keep(0, 9)
		c := g.open(t)
		sub := g.join(t, c, `,"mode":"shared","credit":2,"lease":"1h"`)
		if got := leases(t, c.messages(t, 2)); got != "0:0:1 0:1:1" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		c.send(t, `{"op":"credit","sub":"`+sub+`","add":3}`)
		if got := leases(t, c.messages(t, 3)); got != "0:2:1 0:3:1 0:4:1" {
			t.Error(got)
		}
		synctest.Wait()
		if h := g.held.Held(); h != 0 {
			t.Errorf("%d bytes are held", h)
		}
		free := g.open(t)
		sub = g.join(t, free, "")
		if got := leases(t, free.messages(t, 4)); got != "0:5:1 0:6:1 0:7:1 0:8:1" {
			t.Error(got)
		}
		free.send(t, `{"op":"credit","id":3,"sub":"`+sub+`","add":3}`)
		if o := free.want(t, "error"); !strings.Contains(o.str("detail"), "no bound") {
			t.Error(o)
		}
	})
}

// A client that reads nothing has one block leased for it, whatever there is.
func TestASlowMemberHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		c := g.open(t)
		g.join(t, c, `,"member":"w1","mode":"shared","max_in_flight":1024`)
		gate := c.pause()
		g.keep(0, 1) // the client stops at this
		time.Sleep(time.Second)
		large := strings.Repeat("x", 20_000)
		for range 100 {
			g.AppendValue(g.topic.Ref(0), "k", `"`+large+`"`)
		}
		time.Sleep(3 * time.Second)
		if n := g.groups.Calls("take"); n > 4 {
			t.Errorf("%d times something was taken for one who reads nothing", n)
		}
		if h := g.held.Held(); h > 100_000 {
			t.Errorf("%d bytes are held", h)
		}
		close(gate)
		got := c.messages(t, 1)
		for len(got) < 101 {
			head := c.want(t, "messages")
			for range head.num("count") {
				got = append(got, c.next(t))
			}
		}
		if got[100].num("offset") != 100 {
			t.Error("not in order")
		}
	})
}

func TestPartitionsMoveBetweenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 2)
		g.keep(0, 1)
		g.keep(1, 1)
		a, b := g.open(t), g.open(t)
		subA := g.join(t, a, `,"member":"a","lease":"1m"`)
		if got := leases(t, a.messages(t, 2)); len(got) != len("0:0:1 1:0:1") {
			t.Error(got)
		}
		b.send(t, `{"op":"join","id":1,"topic":"orders","group":"g","member":"b"}`)
		if o := b.want(t, "joined"); fmt.Sprint(o["partitions"]) != "[]" {
			t.Error(o)
		}
		if o := a.want(t, "revoked"); o.str("sub") != subA || fmt.Sprint(o["partitions"]) != "[1]" {
			t.Error(o)
		}
		g.keep(1, 1) // goes to nobody while one is in a's hands
		a.send(t, `{"op":"ack","id":2,"sub":"`+subA+`","partition":1,"offset":0}`)
		if o := a.want(t, "acked"); o["stale"] != nil {
			t.Error(o)
		}
		if o := b.want(t, "assigned"); fmt.Sprint(o["partitions"]) != "[1]" {
			t.Error(o)
		}
		if got := leases(t, b.messages(t, 1)); got != "1:1:1" {
			t.Error(got)
		}
		// A close says goodbye; a connection that is lost does not.
		_ = b.ws.Close(websocket.StatusNormalClosure, "")
		if o := a.want(t, "assigned"); fmt.Sprint(o["partitions"]) != "[1]" || g.epoch("b") != 0 {
			t.Error(o)
		}
		if got := leases(t, a.messages(t, 1)); got != "1:1:2" {
			t.Error(got)
		}
		before := g.epoch("a")
		a.vanish()
		time.Sleep(time.Minute)
		if g.epoch("a") != before || before == 0 {
			t.Error("a lost connection has ended a session")
		}
		// It comes back by its name, and the life before is over.
		again := g.open(t)
		again.send(t, `{"op":"join","id":1,"topic":"orders","group":"g","member":"a"}`)
		if o := again.want(t, "joined"); fmt.Sprint(o["partitions"]) != "[0 1]" || ident.MemberEpoch(o.num("epoch")) <= before {
			t.Error(o)
		}
		other := g.open(t)
		g.join(t, other, `,"member":"a"`)
		o := again.next(t)
		for o.str("op") != "error" { // what came back to it comes first
			o = again.next(t)
		}
		if o.str("code") != "fenced" || o.str("sub") != "s1" || o["id"] != nil {
			t.Error(o)
		}
	})
}

// Who is pinged by a heartbeat and answers lives; who does not is heard no more.
func TestAConnectionIsItsMembersSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		live := g.open(t)
		g.join(t, live, `,"member":"live","mode":"shared","session":"3s"`)
		dead := g.dial(t, "", true)
		dead.want(t, "welcome")
		g.join(t, dead, `,"member":"dead"`)
		time.Sleep(5 * time.Second)
		g.groups.Touched()
		time.Sleep(10 * time.Second)
		heard := map[string]int{}
		for _, s := range g.groups.Touched() {
			heard[s.Member]++
			if s.Ago > time.Second {
				t.Errorf("%s %s ago", s.Member, s.Ago)
			}
		}
		if heard["live"] < 8 || heard["dead"] != 0 {
			t.Error(heard)
		}
		g.groups.Lapse("orders", "g", "dead")
		if o := dead.want(t, "error"); o.str("code") != "fenced" || o.str("sub") != "s1" {
			t.Error(o)
		}
		if code, _ := dead.closed(t); code != 4002 {
			t.Error(code)
		}
	})
}

// A node that drains lets go of no session, and answers what was settled.
func TestADrainLeavesTheSessionRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		g.keep(0, 1)
		c := g.open(t)
		sub := g.join(t, c, `,"member":"w1","mode":"exclusive"`)
		c.messages(t, 1)
		c.send(t, `{"op":"ack","id":2,"sub":"`+sub+`","partition":0,"offset":0}`)
		drained := make(chan error, 1)
		activity.Start(t, func(context.Context) error { drained <- g.manager.Drain(t.Context()); return nil })
		for told := map[string]bool{}; !told["acked"] || !told["closing"]; {
			told[c.next(t).str("op")] = true
		}
		g.keep(0, 1)
		if code, _ := c.closed(t); code != websocket.StatusServiceRestart {
			t.Error(code)
		}
		if err := <-drained; err != nil || g.epoch("w1") == 0 || g.groups.Calls("take") != 1 {
			t.Error(err, g.epoch("w1"), g.groups.Calls("take"))
		}
	})
}

func TestASettlementThatNobodyKnowsOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrouped(t, 1)
		g.keep(0, 1)
		c := g.open(t)
		sub := g.join(t, c, `,"from":"earliest"`)
		c.messages(t, 1)
		g.groups.Fail(ident.NodeID{1}, func(string) error { return fault.New(fault.UnknownOutcome, "broken") })
		c.send(t, `{"op":"ack","id":2,"sub":"`+sub+`","partition":0,"offset":0}`)
		if o := c.want(t, "error"); o.num("id") != 2 || o.str("code") != "unknown-outcome" || fmt.Sprint(o["partitions"]) != "[0]" {
			t.Error(o)
		}
		g.groups.Fail(ident.NodeID{1}, nil)
		c.send(t, `{"op":"ack","id":3,"sub":"`+sub+`","partition":0,"offset":0}`)
		if o := c.want(t, "acked"); o["stale"] != nil {
			t.Error(o)
		}
	})
}

// Hundreds of records go through one connection, each once, acknowledged one by one.
func TestAMemberKeepsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 600
		g := newGrouped(t, 3)
		c := g.open(t)
		sub := g.join(t, c, `,"from":"earliest"`)
		for i := range n {
			g.Append(g.topic.Ref(ident.Index(i%3)), "k")
		}
		var seen []string
		for id := 10; len(seen) < n; {
			o := c.want(t, "messages", "acked", "cursor")
			for range o.num("count") {
				m := c.next(t)
				seen = append(seen, fmt.Sprintf("%d:%d", m.num("partition"), m.num("offset")))
				id++
				c.send(t, fmt.Sprintf(`{"op":"ack","id":%d,"sub":%q,"partition":%d,"offset":%d}`, id, sub, m.num("partition"), m.num("offset")))
			}
		}
		slices.Sort(seen)
		if got := len(slices.Compact(seen)); got != n {
			t.Errorf("%d different ones of %d", got, n)
		}
	})
}
