package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// seat is one member of a group that answers by hand.
type seat struct {
	t            *testing.T
	api          *client.API
	topic, group string
	joined       client.Joined
}

// takeSeat joins the responders of a topic, whose group it makes where there is none.
func takeSeat(t *testing.T, api *client.API, topic string) *seat {
	t.Helper()
	s := &seat{t: t, api: api, topic: topic, group: "responders"}
	if _, err := api.RegisterGroup(t.Context(), topic, s.group, `"mode":"shared","from":"earliest","lease":"60s","session":"60s"`); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.joined, err = api.JoinGroup(t.Context(), topic, s.group, ""); err != nil {
		t.Fatal(err)
	}
	return s
}

// take takes one request and acknowledges it.
func (s *seat) take() client.Leased {
	s.t.Helper()
	m := takeAll(s.t, s.api, s.topic, s.group, s.joined, 1)[0]
	if m.Inbox() == "" || m.Headers[client.CorrelationID] == "" {
		s.t.Fatalf("it is no request: %+v", m)
	}
	if _, err := time.Parse(time.RFC3339, m.Headers[client.DeadlineOf]); err != nil {
		s.t.Fatalf("its deadline is %q", m.Headers[client.DeadlineOf])
	}
	settleAll(s.t, s.api, s.topic, s.group, client.Settlement{Member: s.joined.Member, Epoch: s.joined.Epoch, Ack: []client.At{{Partition: m.Partition, Offset: m.Offset}}})
	return m
}

func (s *seat) inbox() string {
	m := s.take()
	return m.Inbox()
}

// served waits until a gateway knows that a topic has a member.
func served(t *testing.T, api *client.API, topic string) {
	t.Helper()
	harness.Await(t, patience, "there is a responder", func() bool {
		info, err := api.Group(t.Context(), topic, "responders")
		return err == nil && len(info.Members) > 0
	})
}

// pending is a request under way.
type pending struct {
	done chan struct{}
	ans  client.Answer
	err  error
	took time.Duration
}

func ask(ctx context.Context, api *client.API, topic, correlation, value string, timeout time.Duration) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		began := time.Now()
		p.ans, p.err = api.Ask(ctx, topic, correlation, value, timeout)
		p.took = time.Since(began)
	}()
	return p
}

// gets waits for the end of a request, and wants a reply.
func (p *pending) gets(t *testing.T, body string) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the request has no end")
	}
	if p.err != nil || p.ans.Status != 200 || p.ans.Body != body {
		t.Errorf("got %d %q, %v; want %q", p.ans.Status, p.ans.Body, p.err, body)
	}
}

// requestCluster is three nodes with a topic of one partition.
func requestCluster(t *testing.T, topic string) (c *harness.Cluster, leader, one, other *harness.Member) {
	t.Helper()
	return requestClusterOf(t, topic, harness.ClusterOptions{})
}

func requestClusterOf(t *testing.T, topic string, o harness.ClusterOptions) (c *harness.Cluster, leader, one, other *harness.Member) {
	t.Helper()
	c = harness.StartCluster(t, o)
	c.API().CreateTopic(t, topic, `"partitions":1,"replicas":3`)
	c.AwaitWhole(patience, topic)
	leader = c.Member(harness.Leaders(c.API().Topic(t, topic))[0])
	rest := c.Others(leader)
	return c, leader, rest[0], rest[1]
}

func kept(t *testing.T, api *client.API, topic string, n int64) {
	t.Helper()
	harness.Await(t, patience, fmt.Sprintf("%d requests are kept", n), func() bool {
		return api.Topic(t, topic).Layout.Partitions[0].HW == n
	})
}

// TestARepeatCollectsTheReplyOfARequestWhoseGatewayDied ends the gateway of requests before
// their replies are given, which then are kept by the partition's leader.
func TestARepeatCollectsTheReplyOfARequestWhoseGatewayDied(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		repeatsCollect(t, func(m *harness.Member) { m.Kill() })
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		repeatsCollect(t, func(m *harness.Member) {
			if err := m.Stop(); err != nil {
				t.Error(err)
			}
		})
	})
}

func repeatsCollect(t *testing.T, end func(*harness.Member)) {
	c, leader, through, other := requestCluster(t, "asked")
	s := takeSeat(t, client.New(other.URL), "asked")
	at := client.New(other.URL)
	begin := func(id string, n int64) {
		t.Helper()
		ask(t.Context(), client.New(through.URL), "asked", id, `{"ask":"`+id+`"}`, time.Minute)
		kept(t, at, "asked", n)
	}
	begin("before", 1)
	begin("after", 2)
	begin("waits", 3)
	end(through)
	c.AwaitState(patience, through, "dead")

	before, after, waits := s.take(), s.take(), s.take()
	if err := at.Reply(t.Context(), before.Inbox(), `"to before"`, 0); err != nil {
		t.Fatalf("a reply whose gateway is dead: %v", err)
	}
	ask(t.Context(), client.New(leader.URL), "asked", "before", `{"ask":"before"}`, 30*time.Second).gets(t, `"to before"`)
	// And through the third, which waits for it.
	repeat := ask(t.Context(), at, "asked", "after", `{"ask":"after"}`, 30*time.Second)
	if err := client.New(leader.URL).Reply(t.Context(), after.Inbox(), `"to after"`, 0); err != nil {
		t.Fatal(err)
	}
	repeat.gets(t, `"to after"`)
	if err := at.Reply(t.Context(), after.Inbox(), `"again"`, 0); !refusedWith(err, "requester-gone") {
		t.Errorf("a second reply: %v", err)
	}

	// A repeat that waits at the leader outlives it, with the reply that comes then.
	c.Run(through)
	c.AwaitWhole(patience, "asked")
	repeat = ask(t.Context(), at, "asked", "waits", `{"ask":"waits"}`, 30*time.Second)
	leader.Kill()
	c.AwaitTopic(patience, "asked", "another leads", func(info client.TopicInfo) bool {
		l := harness.Leaders(info)[0]
		return l != "" && l != leader.Name
	}, leader)
	harness.Await(t, patience, "the reply is taken", func() bool {
		err := at.Reply(t.Context(), waits.Inbox(), `"to waits"`, 0)
		if err != nil && !passingRefusal(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	repeat.gets(t, `"to waits"`)
	if n := at.Topic(t, "asked").Layout.Partitions[0].HW; n != 3 {
		t.Errorf("%d records are kept of three requests", n)
	}
}

// TestARepeatDoesNotWaitForAPausedGateway pauses the gateway of a request, which nobody can
// tell from one that is dead until it goes on. Then it has the same reply, and takes no other.
func TestARepeatDoesNotWaitForAPausedGateway(t *testing.T) {
	busy(t)
	c, _, through, other := requestCluster(t, "paused")
	at := client.New(other.URL)
	s := takeSeat(t, at, "paused")
	starved := c.Starved()
	first := ask(t.Context(), client.New(through.URL), "paused", "p1", `"p1"`, time.Minute)
	m := s.take()
	through.Pause()
	repeat := ask(t.Context(), at, "paused", "p1", `"p1"`, 12*time.Second)
	harness.Await(t, patience, "the reply is taken", func() bool {
		err := at.Reply(t.Context(), m.Inbox(), `"to p1"`, 0)
		if err != nil && !passingRefusal(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	repeat.gets(t, `"to p1"`)
	t.Logf("the repeat has its reply after %s", repeat.took)
	if most := slack(5*time.Second) + starved(); repeat.took > most {
		t.Errorf("the repeat has its reply after %s, not within %s", repeat.took, most)
	}
	through.Continue()
	for _, by := range []*harness.Member{through, other} {
		if err := client.New(by.URL).Reply(t.Context(), m.Inbox(), `"again"`, 0); !refusedWith(err, "requester-gone") {
			t.Errorf("a second reply: %v", err)
		}
	}
	first.gets(t, `"to p1"`)
}

// TestAGatewayThatIsCutOffTakesNoSecondReply cuts the gateway of a request off the others, or
// off the leader of its partition alone. The reply is taken all the same, and no other one,
// at whichever node it is given; the caller has it in the end.
func TestAGatewayThatIsCutOffTakesNoSecondReply(t *testing.T) {
	busy(t)
	for name, cut := range map[string]func(l *harness.Links, through, leader *harness.Member){
		"all": func(l *harness.Links, through, _ *harness.Member) { l.Isolate(through.Name) },
		"one": func(l *harness.Links, through, leader *harness.Member) { l.Cut(through.Name, leader.Name) },
	} {
		t.Run(name, func(t *testing.T) {
			c, leader, through, other := requestClusterOf(t, "cutoff", harness.ClusterOptions{Links: true})
			s := takeSeat(t, client.New(other.URL), "cutoff")
			served(t, client.New(through.URL), "cutoff")
			first := ask(t.Context(), client.New(through.URL), "cutoff", "c1", `"c1"`, 2*time.Minute)
			m := s.take()
			cut(c.Links, through, leader)
			began := time.Now()
			harness.Await(t, patience, "the reply is taken", func() bool {
				err := client.New(leader.URL).Reply(t.Context(), m.Inbox(), `"a"`, 0)
				if err != nil && !passingRefusal(err) {
					t.Fatal(err)
				}
				return err == nil
			})
			t.Logf("the reply is taken after %s", time.Since(began).Round(time.Millisecond))
			for _, by := range []*harness.Member{through, other, leader} {
				err := client.New(by.URL).Reply(t.Context(), m.Inbox(), `"b"`, 0)
				t.Logf("a second one by %s: %v", by.Name, err)
				if !refusedWith(err, "requester-gone") && !passingRefusal(err) {
					t.Errorf("a second one by %s: %v", by.Name, err)
				}
			}
			c.Links.Heal()
			for _, by := range []*harness.Member{through, other, leader} {
				harness.Await(t, patience, "a second reply is refused for good", func() bool {
					err := client.New(by.URL).Reply(t.Context(), m.Inbox(), `"b"`, 0)
					if err == nil {
						t.Fatalf("a second one is taken by %s", by.Name)
					}
					return refusedWith(err, "requester-gone")
				})
			}
			first.gets(t, `"a"`)
			ask(t.Context(), client.New(other.URL), "cutoff", "c1", `"c1"`, 30*time.Second).gets(t, `"a"`)
		})
	}
}

// TestOneCorrelationIdTwiceAtOnceIsOneRequest asks through two gateways, and twice through one.
func TestOneCorrelationIdTwiceAtOnceIsOneRequest(t *testing.T) {
	t.Parallel()
	c, _, one, other := requestCluster(t, "twins")
	s := takeSeat(t, c.API(), "twins")
	rounds := 20
	for i := range rounds {
		id := fmt.Sprintf("id-%d", i)
		value := fmt.Sprintf(`{"n":%d}`, i)
		var all []*pending
		for _, m := range []*harness.Member{one, other, one} {
			all = append(all, ask(t.Context(), client.New(m.URL), "twins", id, value, 30*time.Second))
		}
		m := s.take()
		if string(m.Value) != value {
			t.Fatalf("round %d: %s is delivered", i, m.Value)
		}
		if err := s.api.Reply(t.Context(), m.Inbox(), value, 0); err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			p.gets(t, value)
		}
	}
	if n := s.api.Topic(t, "twins").Layout.Partitions[0].HW; n != int64(rounds) {
		t.Errorf("%d records are kept of %d requests", n, rounds)
	}
	// Another value under the same id is another request, and there is no such.
	if _, err := s.api.Ask(t.Context(), "twins", "id-1", `{"n":-1}`, time.Second); !refusedWith(err, "idempotency-key-reused") {
		t.Errorf("another body under the same id: %v", err)
	}
}

// TestRepliesThatNobodyWaitsFor gives replies too late, a second time, and to no inbox, through each gateway.
func TestRepliesThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	c, _, through, _ := requestCluster(t, "late")
	s := takeSeat(t, c.API(), "late")
	api := client.New(through.URL)
	for _, m := range c.Members {
		at := client.New(m.URL)
		for _, id := range []string{"", "named-" + m.Name} {
			const timeout = time.Second // enough to be kept by a busy machine
			starved := c.Starved()
			late := ask(t.Context(), api, "late", id, `"late"`, timeout)
			<-late.done
			if !refusedWith(late.err, "reply-timeout") || late.took < timeout || late.took > timeout+slack(time.Second)+starved() {
				t.Errorf("through %s: %v after %s", m.Name, late.err, late.took)
			}
			if err := at.Reply(t.Context(), s.inbox(), `"too late"`, 0); !refusedWith(err, "requester-gone") {
				t.Errorf("a late reply through %s to %q: %v", m.Name, id, err)
			}
		}
		p := ask(t.Context(), api, "late", "", `"in time"`, 30*time.Second)
		inbox := s.inbox()
		if err := at.Reply(t.Context(), inbox, `"first"`, 0); err != nil {
			t.Errorf("through %s: %v", m.Name, err)
		}
		p.gets(t, `"first"`)
		if err := at.Reply(t.Context(), inbox, `"second"`, 0); !refusedWith(err, "requester-gone") {
			t.Errorf("a second reply through %s: %v", m.Name, err)
		}
		for _, none := range []string{"x", inbox[:len(inbox)-2] + "AA", inbox + "AAAA", "~._-"} {
			if err := at.Reply(t.Context(), none, `"guessed"`, 0); !refusedWith(err, "requester-gone") {
				t.Errorf("a reply to %q through %s: %v", none, m.Name, err)
			}
		}
	}

	// A failure is the responder's own.
	p := ask(t.Context(), api, "late", "", `"fail"`, 30*time.Second)
	if err := c.API().Reply(t.Context(), s.inbox(), `{"out of":"tea"}`, 418, "Tidewire-H-Kettle", "cold"); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if p.err != nil || p.ans.Status != 418 || p.ans.Body != `{"out of":"tea"}` || p.ans.Header.Get("Tidewire-Status") != "418" || p.ans.Header.Get("Tidewire-H-Kettle") != "cold" {
		t.Errorf("got %d %q %v, %v", p.ans.Status, p.ans.Body, p.ans.Header, p.err)
	}
}

// asked is how a request ends that gets no reply.
func asked(t *testing.T, at *client.API, timeout time.Duration) error {
	_, err := at.Ask(t.Context(), "empty", "", `1`, timeout)
	return err
}

// TestWithoutRespondersTheAnswerComesAtOnce asks where no member lives: there was none, it
// left, it fell silent.
func TestWithoutRespondersTheAnswerComesAtOnce(t *testing.T) {
	t.Parallel()
	c, _, _, _ := requestCluster(t, "empty")
	api := c.API()
	atOnce := func(what string) {
		t.Helper()
		before := api.Topic(t, "empty").Layout.Partitions[0].HW // of those that looked for a member
		for _, m := range c.Members {
			at := client.New(m.URL)
			best := time.Hour
			for range 20 {
				began := time.Now()
				err := asked(t, at, 10*time.Second)
				best = min(best, time.Since(began))
				if !refusedWith(err, "no-responders") {
					t.Fatalf("%s, through %s: %v", what, m.Name, err)
				}
			}
			t.Logf("%s, through %s: %s", what, m.Name, best)
			if best > 20*time.Millisecond {
				t.Errorf("%s, through %s: the answer takes %s", what, m.Name, best)
			}
		}
		if n := api.Topic(t, "empty").Layout.Partitions[0].HW; n != before {
			t.Errorf("%s: %d requests are kept", what, n-before)
		}
	}
	atOnce("no group")
	gone := func() {
		for _, m := range c.Members {
			harness.Await(t, patience, "the member is gone", func() bool { return refusedWith(asked(t, client.New(m.URL), time.Millisecond), "no-responders") })
		}
	}
	if _, err := api.RegisterGroup(t.Context(), "empty", "responders", `"session":"1s"`); err != nil {
		t.Fatal(err)
	}
	atOnce("a group without members")
	j, err := api.JoinGroup(t.Context(), "empty", "responders", "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := api.LeaveGroup(t.Context(), "empty", "responders", j.Member); err != nil {
		t.Fatal(err)
	}
	gone()
	atOnce("the member has left")
	if _, err := api.JoinGroup(t.Context(), "empty", "responders", "bob"); err != nil {
		t.Fatal(err)
	}
	gone()
	atOnce("the member is silent")
}

// TestRequestsNeedTheirRights asks and replies with tokens that may and may not.
func TestRequestsNeedTheirRights(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	bearer := func(rights map[string]any) []string {
		return []string{"Authorization", "Bearer " + jwt(hs256, claims{"sub": "ann", "tidewire": rights}, accessKey)}
	}
	root := []string{"Authorization", "Bearer " + g.root}
	g.api.Must(t, 201, "POST", "/groups/orders/register", jsonType, `{"group":"responders"}`, root...)
	var j client.Joined
	if err := json.Unmarshal([]byte(g.api.Must(t, 200, "POST", "/groups/orders/node", jsonType, `{"group":"responders","member":"m"}`, root...).Body), &j); err != nil {
		t.Fatal(err)
	}
	orders := []string{"orders"}
	for _, rights := range []map[string]any{{}, {"publish": orders, "reply": orders, "group": orders}, {"request": []string{"news"}}} {
		_, err := g.api.Ask(t.Context(), "orders", "", `1`, 5*time.Second, bearer(rights)...)
		if r := (*client.Refused)(nil); !errors.As(err, &r) || r.Status != 403 || r.Right != "request" {
			t.Errorf("%v asks: %v", rights, err)
		}
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		ans, err := g.api.Ask(t.Context(), "orders", "", `1`, 30*time.Second, bearer(map[string]any{"request": orders})...)
		if err != nil || ans.Body != `"yes"` {
			t.Errorf("%d %q, %v", ans.Status, ans.Body, err)
		}
	})
	var page struct{ Messages []client.Leased }
	harness.Await(t, patience, "the request is delivered", func() bool {
		ans := g.api.Must(t, 200, "GET", fmt.Sprintf("/groups/orders/responders/messages?member=m&epoch=%d&limit=1&wait=1s", j.Epoch), "", "", root...)
		return json.Unmarshal([]byte(ans.Body), &page) == nil && len(page.Messages) == 1
	})
	inbox := page.Messages[0].Inbox()
	for _, rights := range []map[string]any{{}, {"publish": orders, "request": orders, "group": orders}, {"reply": []string{"news"}}} {
		err := g.api.Reply(t.Context(), inbox, `"no"`, 0, bearer(rights)...)
		if r := (*client.Refused)(nil); !errors.As(err, &r) || r.Status != 403 || r.Right != "reply" {
			t.Errorf("%v replies: %v", rights, err)
		}
	}
	if err := g.api.Reply(t.Context(), inbox, `"yes"`, 0, bearer(map[string]any{"reply": orders})...); err != nil {
		t.Error(err)
	}
}
