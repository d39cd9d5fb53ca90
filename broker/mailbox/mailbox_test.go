package mailbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"tidewire/broker/mailbox"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	here, there = ident.NodeID{1}, ident.NodeID{2}
	topic       = ident.TopicID{7}
	asked       = ident.BrokerEpoch(10) // the life of the gateway, which is over
)

// post is a mailbox of a node that leads partitions 0 and 1 of a topic.
type post struct {
	*mailbox.Mailbox
	t    *testing.T
	sure bool // of its lease
}

func in(t *testing.T, f func(t *testing.T, p *post), change ...func(*mailbox.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &post{t: t, sure: true}
		cfg := mailbox.Config{Self: here, Lease: func(uint64) bool { return p.sure }}
		for _, c := range change {
			c(&cfg)
		}
		p.Mailbox = mailbox.New(cfg)
		p.lead(here, here)
		activity.Start(t, p.Run)
		f(t, p)
	})
}

func (p *post) lead(leaders ...ident.NodeID) {
	to := &cluster.Topic{ID: topic}
	for i, id := range leaders {
		to.Partitions = append(to.Partitions, cluster.Partition{Index: ident.Index(i), Leader: id})
	}
	nodes := map[ident.NodeID]*cluster.Node{there: {ID: there, BrokerEpoch: asked, State: cluster.Dead, Ended: asked}}
	p.Apply(&cluster.Snapshot{Index: 20, ByID: map[ident.TopicID]*cluster.Topic{topic: to}, Nodes: nodes})
}

// inboxOf is the inbox of request n of a partition, which waits a minute.
func inboxOf(n byte, of ident.Index) string {
	a := inbox.Address{Topic: topic, Node: there, Token: inbox.Token{n}, Lasting: true, Life: asked, Partition: of, Timeout: time.Minute}
	return a.String()
}

// put says what became of a reply.
func (p *post) put(to, value string) string {
	return p.putAs(to, value, false)
}

func (p *post) putAs(to, value string, gone bool) string {
	h, err := p.KeepReply(p.t.Context(), to, &inbox.Reply{Value: []byte(value)}, gone)
	if err != nil {
		return fault.KindOf(err).Code()
	}
	return map[rpc.Handed]string{rpc.HandedOver: "kept", rpc.HandedNobody: "second"}[h]
}

// get collects in a goroutine, and gives what came and how long it took.
func (p *post) get(to string, deadline, wait time.Duration) func() string {
	got, began := make(chan string, 1), time.Now()
	go func() {
		c, err := p.KeptReply(p.t.Context(), to, time.Now().Add(deadline).UnixMilli(), wait)
		took := time.Since(began)
		switch {
		case err != nil:
			got <- fmt.Sprint(fault.KindOf(err).Code(), " ", took)
		case c.Reply != nil:
			got <- fmt.Sprint(string(c.Reply.Value), " ", took)
		default:
			got <- fmt.Sprint(map[rpc.Fate]string{rpc.NotYet: "not yet", rpc.Over: "over"}[c.Fate], " ", took)
		}
	}()
	synctest.Wait()
	return func() string { return <-got }
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAReplyIsKeptForWhoCollects(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		x, y := inboxOf(1, 0), inboxOf(2, 1)
		same(t, p.put(x, "a"), "kept")
		same(t, p.put(x, "b"), "second")
		for range 2 {
			same(t, p.get(x, time.Minute, time.Second)(), "a 0s")
		}
		one, two := p.get(y, 30*time.Second, 5*time.Second), p.get(y, 30*time.Second, 5*time.Second)
		time.Sleep(time.Second)
		same(t, p.put(y, "c"), "kept")
		same(t, one(), "c 1s")
		same(t, two(), "c 1s")
		same(t, p.put(y, "d"), "second")
	})
}

// The deadline is the leader's to judge; what is kept ends with it.
func TestTheMailEndsAtTheDeadline(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		reg := prometheus.NewRegistry()
		if err := p.Register(reg); err != nil {
			t.Fatal(err)
		}
		entries := func() float64 {
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				if f.GetName() == "broker_mailbox_entries" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		x := inboxOf(1, 0)
		same(t, p.get(x, 0, time.Second)(), "over 0s")
		same(t, p.get(x, -time.Hour, time.Second)(), "over 0s")
		same(t, p.get(x, 10*time.Second, 3*time.Second)(), "not yet 3s")
		same(t, p.get(x, 7*time.Second, time.Hour)(), "over 7s")
		if n := entries(); n != 0 {
			t.Errorf("%v entries", n)
		}
		// Without anybody who has read the request the timeout is the bound, from now on.
		same(t, p.put(x, "a"), "kept")
		time.Sleep(59 * time.Second)
		same(t, p.get(x, time.Second, time.Second)(), "a 0s")
		time.Sleep(time.Second)
		synctest.Wait()
		if n := entries(); n != 0 {
			t.Errorf("%v entries", n)
		}
		// Nobody keeps anything for longer than the inbox says.
		same(t, p.get(x, 100*time.Hour, 100*time.Hour)(), "over 1m0s")
	})
}

func TestWhoDoesNotLeadKeepsNothing(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		x, y := inboxOf(1, 0), inboxOf(2, 1)
		p.put(x, "a")
		p.put(y, "b")
		waits, other := p.get(inboxOf(3, 0), time.Minute, time.Minute), p.get(inboxOf(4, 1), time.Minute, 5*time.Second)
		time.Sleep(time.Second)
		p.lead(there, here)
		same(t, waits(), "leader-unavailable 1s")
		same(t, other(), "not yet 5s")
		same(t, p.put(x, "a"), "leader-unavailable")
		same(t, p.get(x, time.Minute, time.Second)(), "leader-unavailable 0s")
		same(t, p.get(y, time.Minute, time.Second)(), "b 0s")
		p.lead(here, here)
		same(t, p.get(x, time.Minute, time.Second)(), "not yet 1s") // it went with the leadership
		p.sure = false
		same(t, p.put(y, "b"), "leader-unavailable")
		same(t, p.get(y, time.Minute, time.Second)(), "leader-unavailable 0s")
	})
}

// Whether a gateway is gone is for the cluster to say, or for itself: whoever cannot reach it
// does not know.
func TestNothingIsKeptForAGatewayThatCountsAsAlive(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		of := func(n byte, life ident.BrokerEpoch, node ident.NodeID) string {
			a := inbox.Address{Topic: topic, Node: node, Token: inbox.Token{n}, Lasting: true, Life: life, Timeout: time.Minute}
			return a.String()
		}
		for i, x := range []struct {
			life ident.BrokerEpoch
			node ident.NodeID
			want string
		}{
			{0, there, "kept"},
			{9, there, "kept"},
			{10, there, "kept"},
			{11, there, "leader-unavailable"}, // a life of which this node has yet to hear
			{20, ident.NodeID{9}, "kept"},
			{21, ident.NodeID{9}, "leader-unavailable"}, // a node that was forgotten, and a young one
		} {
			to := of(byte(i), x.life, x.node)
			same(t, p.put(to, "a"), x.want)
			want := map[string]string{"kept": "second", "leader-unavailable": "kept"}[x.want]
			same(t, p.putAs(to, "b", true), want)
		}
	})
}

func TestWhatIsNoInboxOfTheMailbox(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		brief := inbox.Address{Topic: topic}
		other := inbox.Address{Topic: ident.TopicID{9}, Lasting: true, Timeout: time.Second}
		for to, want := range map[string]string{"": "invalid", "x": "invalid", brief.String(): "invalid", other.String(): "leader-unavailable", inboxOf(1, 9): "leader-unavailable"} {
			same(t, p.put(to, "a"), want)
			same(t, p.get(to, time.Minute, time.Second)(), want+" 0s")
		}
	})
}

func TestTheMailboxIsBounded(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		same(t, p.put(inboxOf(1, 0), strings.Repeat("x", 500)), "kept")
		same(t, p.put(inboxOf(2, 0), strings.Repeat("x", 500)), "limit")
		waits := p.get(inboxOf(3, 0), time.Minute, time.Minute)
		same(t, p.put(inboxOf(4, 0), "y"), "limit")
		same(t, p.get(inboxOf(4, 0), time.Minute, time.Second)(), "limit 0s")
		same(t, p.put(inboxOf(3, 0), strings.Repeat("z", 500)), "kept") // who waits has it, whatever room there is
		same(t, waits(), strings.Repeat("z", 500)+" 0s")
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, p.put(inboxOf(4, 0), "y"), "kept")
	}, func(c *mailbox.Config) { c.Entries, c.Bytes = 2, 1000 })
}

// Who gives up leaves nothing but the time of the request.
func TestWhoCollectsMayGiveUp(t *testing.T) {
	in(t, func(t *testing.T, p *post) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		c, err := p.KeptReply(ctx, inboxOf(1, 0), time.Now().Add(time.Minute).UnixMilli(), time.Hour)
		if err != nil || c.Reply != nil {
			t.Error(c, err)
		}
		same(t, p.put(inboxOf(1, 0), "a"), "kept")
	})
}
