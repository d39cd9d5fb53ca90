package ask_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/gateway/access"
	"tidewire/gateway/ask"
	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var one, two, three = ident.NodeID{1}, ident.NodeID{2}, ident.NodeID{3}

// world is a cluster of three gateways, which are its brokers too, and topic orders of one
// partition, that node three leads.
type world struct {
	*memlog.Broker
	t     *testing.T
	topic *cluster.Topic
	asks  map[ident.NodeID]*ask.Ask
	mail  map[ident.NodeID]*mailbox

	mu      sync.Mutex
	snap    *cluster.Snapshot
	changed chan struct{}
	found   map[string]publish.Result // by idempotency key
	hash    map[string][16]byte
	count   int                                         // records that were asked to be published
	spoil   func(publish.Result) (publish.Result, bool) // what a publisher hears; false: nothing is kept
	hold    chan struct{}                               // not nil: publishing waits
	cut     map[ident.NodeID]bool                       // out of reach of the others
	split   map[[2]ident.NodeID]bool                    // pairs that cannot reach one another
	lives   map[ident.NodeID]standing
	calls   int                   // between gateways
	mute    map[ident.NodeID]bool // they answer nothing
	lose    bool                  // answers between nodes are lost
	waiting sync.WaitGroup
}

func newWorld(t *testing.T) *world {
	w := &world{
		Broker: memlog.New(), t: t, asks: map[ident.NodeID]*ask.Ask{}, mail: map[ident.NodeID]*mailbox{}, changed: make(chan struct{}),
		found: map[string]publish.Result{}, hash: map[string][16]byte{}, cut: map[ident.NodeID]bool{},
		split: map[[2]ident.NodeID]bool{}, lives: map[ident.NodeID]standing{},
	}
	w.MaxMessageBytes = 1000
	w.topic = w.Topic("orders", 1)
	w.topic.Partitions[0].Leader = three
	group := &cluster.Group{ID: ident.GroupID{1}, Topic: w.topic.ID, Name: "responders", Members: []cluster.Member{{ID: "w", Epoch: 1, Node: one}}}
	var none *cluster.GroupTable
	w.snap = &cluster.Snapshot{
		Index: 1, Topics: map[string]*cluster.Topic{"orders": w.topic}, ByID: map[ident.TopicID]*cluster.Topic{w.topic.ID: w.topic},
		Groups: map[ident.TopicID]*cluster.GroupTable{w.topic.ID: none.With(group)}, Nodes: map[ident.NodeID]*cluster.Node{},
	}
	for _, id := range []ident.NodeID{one, two, three} {
		w.snap.Nodes[id] = &cluster.Node{ID: id, State: cluster.Alive, Roles: []string{"gateway", "broker"}, BrokerEpoch: 1}
		w.lives[id] = standing{epoch: 1, until: time.Now().Add(time.Hour)}
		w.mail[id] = newMailbox(t)
		w.start(id)
	}
	t.Cleanup(w.waiting.Wait)
	return w
}

// start begins a life of a gateway.
func (w *world) start(id ident.NodeID, change ...func(*ask.Config)) *ask.Ask {
	cfg := ask.Config{
		Self: id, Topology: w, Changes: w, Publisher: w, Reader: w, Life: func() (ident.BrokerEpoch, bool) { return w.life(id) },
		Peer: func(to ident.NodeID) (ask.Peer, error) { return link{w, id, to}, nil },
		Mail: func(to ident.NodeID) (ask.Mail, error) { return link{w, id, to}, nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	a := ask.New(cfg)
	activity.Start(w.t, a.Run)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks[id] = a
	return a
}

func (w *world) Snapshot() *cluster.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snap
}

func (*world) CatchUp(context.Context) {}

func (w *world) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	for {
		w.mu.Lock()
		s, changed := w.snap, w.changed
		w.mu.Unlock()
		if s.Index > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *world) change(f func(*cluster.Snapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := *w.snap
	s.Nodes, s.Topics, s.ByID, s.Groups = maps.Clone(s.Nodes), maps.Clone(s.Topics), maps.Clone(s.ByID), maps.Clone(s.Groups)
	s.Index++
	f(&s)
	w.snap = &s
	close(w.changed)
	w.changed = make(chan struct{})
}

// state declares something of a node.
func (w *world) state(id ident.NodeID, to cluster.NodeState) {
	w.change(func(s *cluster.Snapshot) {
		n := *s.Nodes[id]
		n.State = to
		if to == cluster.Dead {
			n.Ended = n.BrokerEpoch
		}
		s.Nodes[id] = &n
	})
}

// lead moves the partition.
func (w *world) lead(id ident.NodeID) {
	w.change(func(s *cluster.Snapshot) {
		t := *w.topic
		t.Partitions = append([]cluster.Partition(nil), t.Partitions...)
		t.Partitions[0].Leader = id
		s.Topics["orders"], s.ByID[t.ID] = &t, &t
	})
}

// reach says whether a node can be reached by others.
func (w *world) reach(id ident.NodeID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[id] = !is
}

// Publish is a lane and its leader at once.
func (w *world) Publish(req publish.Request, done func(publish.Result)) {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	rec := req.Record
	rec.Value = append([]byte(nil), rec.Value...)
	req.Record = rec
	if hold == nil {
		done(w.keep(&req))
		return
	}
	w.waiting.Go(func() {
		<-hold
		done(w.keep(&req))
	})
}

func (w *world) keep(req *publish.Request) publish.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	res := publish.Result{Topic: "orders"}
	spoil := w.spoil
	if spoil != nil {
		var kept bool
		if res, kept = spoil(res); !kept {
			return res
		}
	}
	if k := req.Record.Idempotency; k != nil {
		name := k.Principal + "\x00" + k.Key
		if old, ok := w.found[name]; ok {
			if w.hash[name] != k.Hash {
				res.Err = fault.New(fault.IdempotencyKeyReused, "reused")
				return res
			}
			old.Duplicate, old.Err = true, res.Err
			return old
		}
		defer func() { w.found[name], w.hash[name] = res, k.Hash }()
	}
	res.Offset, _ = w.AppendRecord(w.topic.Ref(0), &req.Record)
	res.Timestamp = time.Now().UnixMilli()
	return res
}

// original is what a leader knows of a record's key.
func (w *world) original(k *record.Idempotency) (rpc.Original, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := k.Principal + "\x00" + k.Key
	old, ok := w.found[name]
	if ok && w.hash[name] != k.Hash {
		return rpc.Original{}, fault.New(fault.IdempotencyKeyReused, "reused")
	}
	return rpc.Original{Known: ok, Offset: old.Offset, Timestamp: old.Timestamp}, nil
}

// serve says whether there is a member of a group.
func (w *world) serve(is bool) {
	w.change(func(s *cluster.Snapshot) {
		g := *s.Groups[w.topic.ID].Get("responders")
		if g.Members = nil; is {
			g.Members = []cluster.Member{{ID: "w", Epoch: 1, Node: one}}
		}
		s.Groups[w.topic.ID] = s.Groups[w.topic.ID].With(&g)
	})
}

// requests are the inboxes of what was kept.
func (w *world) requests() (out []string) {
	w.t.Helper()
	res, err := w.Read(w.t.Context(), rpc.Read{Partition: w.topic.Ref(0), MaxBytes: 1 << 30})
	if err != nil {
		w.t.Fatal(err)
	}
	for rest := res.Batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil {
			w.t.Fatal(err)
		}
		rest = more
		for it := b.Entries(); it.Next(); {
			for _, h := range it.Entry().Headers {
				if h.Name == ask.ReplyTo {
					out = append(out, h.Value)
				}
			}
		}
	}
	return out
}

// last is the inbox of the newest request.
func (w *world) last() string {
	all := w.requests()
	return all[len(all)-1]
}

// client notes what it is told.
type client struct {
	mu   sync.Mutex
	log  []string
	at   time.Time
	call *ask.Call
}

func (c *client) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log, c.at = append(c.log, fmt.Sprintf(format, args...)), time.Now()
}

func (c *client) Accepted(a ask.Accepted) {
	c.note("accepted %d %v", a.Offset, a.Duplicate)
}

func (c *client) Answered(r *inbox.Reply, err error) {
	if err != nil {
		c.note("%s", fault.KindOf(err).Code())
		return
	}
	c.note("reply %s", r.Value)
}

func (c *client) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.log)
}

// ask begins a request at a gateway.
func (w *world) ask(at ident.NodeID, change ...func(*ask.Request)) *client {
	w.t.Helper()
	q := ask.Request{Topic: "orders", Timeout: time.Minute, Record: record.Record{ContentType: "text/plain", Value: []byte("q")}}
	for _, f := range change {
		f(&q)
	}
	c := &client{}
	call, err := w.asks[at].Begin(w.t.Context(), q, c)
	if err != nil {
		c.note("%s", fault.KindOf(err).Code())
	}
	c.call = call
	return c
}

func named(id string) func(*ask.Request) { return func(q *ask.Request) { q.Correlation = id } }

func within(d time.Duration) func(*ask.Request) { return func(q *ask.Request) { q.Timeout = d } }

// reply replies by a gateway, and says what became of that.
func (w *world) reply(by ident.NodeID, to, value string) string {
	w.t.Helper()
	d, err := w.asks[by].Find(w.t.Context(), access.Everyone(), to)
	if err == nil {
		err = w.asks[by].Reply(w.t.Context(), d, &inbox.Reply{ContentType: "text/plain", Value: []byte(value)})
	}
	if err != nil {
		return fault.KindOf(err).Code()
	}
	return "ok"
}
