package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// requestCrew is requesters and responders on a topic, and what became of each request.
type requestCrew struct {
	t        *testing.T
	c        *harness.Cluster
	topic    string
	timeout  time.Duration
	ctx      context.Context
	running  sync.WaitGroup
	asked    atomic.Int64 // the number of the latest request
	begun    atomic.Int64
	ended    atomic.Int64
	asking   sync.WaitGroup // requesters
	seat     atomic.Int64
	gateways []gateway

	mu    sync.Mutex
	ends  map[string]int // requests, by how they ended
	took  []time.Duration
	gone  int // replies that were answered 410
	lives []*crewResponder
}

// crewResponder is one member that answers over HTTP.
type crewResponder struct {
	name string
	stop context.CancelFunc
	done chan struct{}
}

// question is the value of a request, and answer that of its reply.
type question struct {
	N     int64  `json:"n"`
	Token string `json:"token"`
}

type questionReply struct {
	N        int64  `json:"n"`
	Token    string `json:"token"`
	By       string `json:"by"`
	Delivery int    `json:"delivery"`
}

func newRequestCrew(t *testing.T, c *harness.Cluster, topic string) *requestCrew {
	t.Helper()
	w := &requestCrew{t: t, c: c, topic: topic, timeout: 15 * time.Second, ends: map[string]int{}}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(t.Context())
	for _, m := range c.Gateways() {
		w.gateways = append(w.gateways, gateway{m.Name, m.Addr, m.URL})
	}
	t.Cleanup(func() {
		cancel()
		w.asking.Wait()
		w.running.Wait()
	})
	if status, err := c.API().RegisterGroup(w.ctx, topic, "responders", `"mode":"shared","lease":"3s","session":"2s","backoff":"50ms","max_deliveries":100`); err != nil || status != 201 {
		t.Fatalf("register: %d, %v", status, err)
	}
	return w
}

func (w *requestCrew) pick() gateway { return w.gateways[rand.N(len(w.gateways))] }

// respond has one more responder join.
func (w *requestCrew) respond() {
	ctx, stop := context.WithCancel(w.ctx)
	r := &crewResponder{name: fmt.Sprintf("r%d", w.seat.Add(1)), stop: stop, done: make(chan struct{})}
	w.mu.Lock()
	w.lives = append(w.lives, r)
	w.mu.Unlock()
	w.running.Go(func() {
		defer close(r.done)
		w.responder(ctx, r)
	})
}

// kill ends the oldest responder as one that is killed: with requests in hand and no word.
func (w *requestCrew) kill() {
	w.mu.Lock()
	r := w.lives[0]
	w.lives = w.lives[1:]
	w.mu.Unlock()
	r.stop()
	<-r.done
}

func (w *requestCrew) responder(ctx context.Context, r *crewResponder) {
	apis := map[string]*client.API{}
	pick := func() *client.API {
		g := w.pick()
		if apis[g.url] == nil {
			apis[g.url] = client.New(g.url)
		}
		return apis[g.url]
	}
	defer func() {
		for _, api := range apis {
			api.HTTP.CloseIdleConnections()
		}
	}()
	for ctx.Err() == nil {
		j, err := pick().JoinGroup(ctx, w.topic, "responders", r.name)
		for err == nil && ctx.Err() == nil {
			err = w.work(ctx, r, j, pick)
			if err != nil && passingRefusal(err) {
				pause(ctx, 20*time.Millisecond)
				err = nil
			}
		}
		if err != nil && ctx.Err() == nil && !passingRefusal(err) && !isFenced(err) {
			w.t.Errorf("responder %s: %v", r.name, err)
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// work takes requests, answers each, and acknowledges them.
func (w *requestCrew) work(ctx context.Context, r *crewResponder, j client.Joined, pick func() *client.API) error {
	all, err := pick().TakeMessages(ctx, w.topic, "responders", j, 16, "500ms")
	if err != nil {
		return err
	}
	var at []client.At
	for i := range all {
		m := &all[i]
		var q question
		if err := json.Unmarshal(m.Value, &q); err != nil {
			w.t.Errorf("a request is %s: %v", m.Value, err)
			return nil
		}
		text, _ := json.Marshal(questionReply{N: q.N, Token: q.Token, By: r.name, Delivery: m.Delivery})
		if err := w.give(ctx, m, string(text), pick); err != nil {
			return err
		}
		at = append(at, client.At{Partition: m.Partition, Offset: m.Offset})
	}
	for len(at) > 0 && ctx.Err() == nil {
		_, err := pick().Settle(ctx, w.topic, "responders", client.Settlement{Member: j.Member, Epoch: j.Epoch, Ack: at})
		if err == nil || !passingRefusal(err) {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// give gives a reply until somebody takes it, or says that nobody waits for it.
func (w *requestCrew) give(ctx context.Context, m *client.Leased, text string, pick func() *client.API) error {
	deadline, err := time.Parse(time.RFC3339, m.Headers[client.DeadlineOf])
	if err != nil {
		w.t.Errorf("a request's deadline: %v", err)
	}
	for ctx.Err() == nil {
		err := pick().Reply(ctx, m.Inbox(), text, 0)
		switch {
		case err == nil:
			return nil
		case refusedWith(err, "requester-gone"):
			w.mu.Lock()
			w.gone++
			w.mu.Unlock()
			return nil
		case !passingRefusal(err):
			return err
		case time.Now().After(deadline):
			return nil // nobody waits for it any more
		}
		pause(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}

// ask begins so many requesters, which ask for as long as more says so of the next request.
func (w *requestCrew) ask(requesters int, more func(n int64) bool) {
	for i := range requesters {
		w.asking.Go(func() {
			r := &crewRequester{requestCrew: w, kind: []string{"http", "ws", "plain"}[i%3], apis: map[string]*client.API{}}
			defer r.close()
			for n := w.asked.Add(1); more(n) && w.ctx.Err() == nil && !w.t.Failed(); n = w.asked.Add(1) {
				w.begun.Add(1)
				r.one(n)
				w.ended.Add(1)
			}
		})
	}
}

// crewRequester asks one request after the other: over HTTP or a WebSocket with a
// correlation id, by which it asks again elsewhere where its gateway is lost, or plain, over
// HTTP and once.
type crewRequester struct {
	*requestCrew
	kind string
	apis map[string]*client.API
	ws   *client.WS
	id   int64
}

func (r *crewRequester) close() {
	for _, api := range r.apis {
		api.HTTP.CloseIdleConnections()
	}
	if r.ws != nil {
		r.ws.Drop()
	}
}

// errLost is the end of a plain request whose gateway is lost.
var errLost = errors.New("connection lost")

func (r *crewRequester) one(n int64) {
	q := question{N: n, Token: uuid.NewString()}
	value, _ := json.Marshal(q)
	began := time.Now()
	deadline := began.Add(r.timeout)
	body, err := "", error(nil)
	var before []error
	for {
		left := time.Until(deadline).Truncate(time.Millisecond)
		if left < time.Millisecond {
			break
		}
		ctx, cancel := context.WithDeadline(r.ctx, deadline.Add(slack(time.Second)))
		switch r.kind {
		case "ws":
			body, err = r.socket(ctx, q.Token, string(value), left)
		case "http":
			body, err = r.call(ctx, q.Token, string(value), left)
		default:
			body, err = r.call(ctx, "", string(value), left)
		}
		cancel()
		again := err != nil && passingRefusal(err) && !refusedWith(err, "reply-timeout")
		if refused := (*client.Refused)(nil); again && r.kind == "plain" && !errors.As(err, &refused) {
			err, again = errLost, false // nobody knows what became of it
		}
		if !again || r.ctx.Err() != nil {
			break
		}
		before = append(before, err)
		pause(r.ctx, 20*time.Millisecond)
	}
	r.judge(q, body, err, before, time.Since(began))
}

func (r *crewRequester) call(ctx context.Context, id, value string, left time.Duration) (string, error) {
	g := r.pick()
	if r.apis[g.url] == nil {
		r.apis[g.url] = client.New(g.url)
	}
	ans, err := r.apis[g.url].Ask(ctx, r.topic, id, value, left)
	if err == nil && ans.Status != 200 {
		err = fmt.Errorf("status %d: %s", ans.Status, ans.Body)
		r.t.Error(err)
	}
	return ans.Body, err
}

func (r *crewRequester) socket(ctx context.Context, id, value string, left time.Duration) (body string, err error) {
	if r.ws == nil {
		g := r.pick()
		if r.ws, err = client.DialWS(ctx, g.addr, ""); err != nil {
			r.ws = nil
			return "", err
		}
	}
	r.id++
	defer func() {
		if refused := (*client.Refused)(nil); err != nil && !errors.As(err, &refused) {
			r.ws.Drop()
			r.ws = nil
		}
	}()
	if err := r.ws.Send(ctx, fmt.Sprintf(`{"op":"request","id":%d,"topic":%q,"timeout":%q,"correlation":%q,"value":%s}`, r.id, r.topic, left, id, value)); err != nil {
		return "", err
	}
	for accepted := false; ; {
		f, err := r.ws.Answer(ctx, r.id)
		switch {
		case err != nil:
			return "", err
		case f.Op == "accepted" && !accepted:
			accepted = true
		case f.Op == "error":
			status := map[string]int{"reply-timeout": 504, "unknown-outcome": 504, "throttled": 429, "limit": 429}[f.Code]
			if status == 0 {
				status = 503
			}
			return "", &client.Refused{Call: "request", Problem: client.Problem{Status: status, Code: f.Code, Detail: f.Detail}}
		case f.Op == "reply":
			var reply struct{ Value json.RawMessage }
			err := json.Unmarshal(f.Raw, &reply)
			return string(reply.Value), err
		default:
			r.t.Errorf("a request is answered %s", f.Raw)
			return "", errors.New("no answer to a request")
		}
	}
}

// judge notes how a request ended: in its own reply, a timeout, or a stated error; before
// is what it heard until then.
func (w *requestCrew) judge(q question, body string, err error, before []error, took time.Duration) {
	how := "reply"
	refused := (*client.Refused)(nil)
	var a questionReply
	switch {
	case w.ctx.Err() != nil:
		return
	case errors.Is(err, errLost):
		how = "lost with its gateway"
	case errors.As(err, &refused):
		how = refused.Code
		if how == "reply-timeout" && took < w.timeout-time.Second {
			w.t.Errorf("request %d has no reply after %s: %v; before: %v", q.N, took, err, before) // nobody is to give up so early
		}
		if !slices.Contains([]string{"reply-timeout", "leader-unavailable", "not-enough-replicas", "coordinator-unavailable", "unknown-outcome", "draining", "no-responders", "throttled"}, how) {
			w.t.Errorf("request %d: %v", q.N, err)
		}
	case err != nil:
		how = "unreachable until its deadline"
	case json.Unmarshal([]byte(body), &a) != nil, a.N != q.N, a.Token != q.Token:
		how = "crossed"
		w.t.Errorf("request %d with token %s got the reply %s", q.N, q.Token, body)
	}
	if took > w.timeout+slack(time.Second) {
		w.t.Errorf("request %d ends after %s (%s)", q.N, took, how)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[how]++
	w.took = append(w.took, took)
}

// report says how all ended.
func (w *requestCrew) report() {
	w.t.Helper()
	requests := w.begun.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.took)
	w.t.Logf("%d requests ended: %v; p50 %s, p99 %s, the longest %s; %d replies came to nobody", len(w.took), w.ends, w.took[len(w.took)/2], w.took[len(w.took)*99/100], w.took[len(w.took)-1], w.gone)
	if int64(len(w.took)) != requests {
		w.t.Errorf("%d requests have no end", requests-int64(len(w.took)))
	}
	if n := int64(w.ends["reply"]); n < requests*95/100 {
		w.t.Errorf("only %d of %d got their reply", n, requests)
	}
}

// once wants each correlation id to be kept once, however often it was asked.
func (w *requestCrew) once(partitions int) {
	w.t.Helper()
	seen := map[string]client.At{}
	for p := range partitions {
		for _, m := range w.c.API().ReadAll(w.t, w.topic, p) {
			id := m.Headers[client.CorrelationID]
			at := client.At{Partition: m.Partition, Offset: m.Offset}
			if was, twice := seen[id]; twice || id == "" {
				w.t.Errorf("the correlation id %q is kept at %+v and %+v", id, was, at)
			}
			seen[id] = at
		}
	}
}

// TestEveryRequestEndsWhileWhoTakesPartDies asks through three nodes while, in turn, a
// responder is killed, a node, and the node that leads the coordinators, or a node is stopped.
func TestEveryRequestEndsWhileWhoTakesPartDies(t *testing.T) {
	busy(t)
	// A slow machine takes longer over the requests, and no more than so many of them are
	// to be lost.
	requests, kills, most, every, partitions := int64(3_000), int64(4), int64(6), time.Second, 6
	if harness.Soak() {
		requests, most, every = 100_000, math.MaxInt64, 4*time.Second
	}
	c := harness.StartCluster(t, harness.ClusterOptions{})
	c.API().CreateTopic(t, "calls", fmt.Sprintf(`"partitions":%d,"replicas":3`, partitions))
	c.AwaitWhole(patience, "calls")
	w := newRequestCrew(t, c, "calls")
	for range 4 {
		w.respond()
	}
	for _, m := range c.Members {
		served(t, client.New(m.URL), "calls")
	}
	var killed atomic.Int64
	w.ask(64, func(n int64) bool { return n <= requests || killed.Load() < kills })
	began, over := time.Now(), make(chan struct{})
	go func() {
		defer close(over)
		w.asking.Wait()
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for round := 1; ; round++ {
		select {
		case <-tick.C:
		case <-over:
			t.Logf("%d ends in %s", killed.Load(), time.Since(began).Round(time.Millisecond))
			w.report()
			w.once(partitions)
			return
		}
		if killed.Load() >= most {
			continue
		}
		if round%2 == 1 {
			w.kill()
			w.respond()
		} else {
			m := c.Members[round/2%len(c.Members)]
			if round%6 == 0 {
				m = c.CoordinatorLeader()
			}
			if round%8 == 4 { // as an operator does
				if err := m.Stop(); err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
			} else {
				m.Kill()
			}
			c.AwaitState(patience, m, "dead")
			c.Run(m)
			c.AwaitWhole(patience, "calls")
		}
		killed.Add(1)
	}
}
