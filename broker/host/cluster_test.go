package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/broker/link"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// court is a coordinator of one topic with one partition. It grants what leaders ask
// for, under the same conditions as the real one.
type court struct {
	mu       sync.Mutex
	snapshot *cluster.Snapshot
	changed  chan struct{}
	silent   bool // it takes changes and does not answer
	late     bool // it answers nobody, and holds changes back
	held     []cluster.Insync
	deaf     bool              // to what a Clamp says
	clamped  []cluster.ClampOf // taken
}

var topicID = ident.TopicID{7}

func newCourt(minInsync int, nodes ...ident.NodeID) *court {
	c := &court{changed: make(chan struct{}), snapshot: &cluster.Snapshot{
		Index: 1, Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}, Nodes: map[ident.NodeID]*cluster.Node{}, Deleted: map[ident.TopicID]uint64{},
	}}
	for _, n := range nodes {
		c.snapshot.Nodes[n] = &cluster.Node{ID: n, BrokerEpoch: 1, Activated: 1, State: cluster.Alive}
	}
	c.change(func(t *cluster.Topic) {
		*t = cluster.Topic{
			ID: topicID, Name: "orders", Generation: 1,
			Settings: cluster.Settings{Replicas: len(nodes), MinInsync: minInsync, MaxMessageBytes: 1 << 20, Durability: cluster.Fsync, IdempotencyWindow: time.Minute},
			Partitions: []cluster.Partition{{
				Range: ident.FullRange, State: cluster.Open, Replicas: nodes, ISR: nodes, Leader: nodes[0], LeaderEpoch: 1,
			}},
		}
	})
	return c
}

// change makes the next snapshot.
func (c *court) change(do func(*cluster.Topic)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(do)
}

func (c *court) changeLocked(do func(*cluster.Topic)) {
	s := *c.snapshot
	s.Index++
	t := &cluster.Topic{}
	if old := s.ByID[topicID]; old != nil {
		*t = *old
		t.Partitions = slices.Clone(old.Partitions)
	}
	do(t)
	t.Modified = s.Index
	t.Partitions[0].Version++
	s.Topics, s.ByID = map[string]*cluster.Topic{t.Name: t}, map[ident.TopicID]*cluster.Topic{t.ID: t}
	c.snapshot = &s
	close(c.changed)
	c.changed = make(chan struct{})
}

// lead makes a node the leader, in a new epoch and without those that are out.
func (c *court) lead(n ident.NodeID, out ...ident.NodeID) {
	c.change(func(t *cluster.Topic) {
		p := &t.Partitions[0]
		p.Leader, p.LeaderEpoch = n, p.LeaderEpoch+1
		// Whoever left the ISR for an old leader that was cut off is electable all the same.
		p.ISR = slices.DeleteFunc(slices.Clone(p.Replicas), func(m ident.NodeID) bool { return slices.Contains(out, m) })
	})
}

func (c *court) part() cluster.Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot.ByID[topicID].Partitions[0]
}

func (c *court) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	for {
		c.mu.Lock()
		s, changed := c.snapshot, c.changed
		c.mu.Unlock()
		if s.Index > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *court) Propose(_ context.Context, change cluster.Change) (cluster.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case change.Clamp != nil:
		return c.clampLocked(change.Clamp)
	case change.Elect != nil:
		return c.electLocked(change.Elect), nil
	}
	if c.late {
		c.held = append(c.held, *change.Insync)
		return cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "nobody knows")
	}
	taken := c.insyncLocked(change.Insync)
	if c.silent {
		return cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "nobody knows")
	}
	return cluster.Answer{Taken: taken}, nil
}

func (c *court) clampLocked(change *cluster.Clamp) (a cluster.Answer, err error) {
	if c.deaf {
		return a, fault.New(fault.CoordinatorUnavailable, "nobody knows")
	}
	for _, of := range change.Of {
		p := c.snapshot.ByID[topicID].Partitions[0]
		ok := p.Unclamped != 0 && p.LeaderEpoch == of.Epoch && change.Leader.Node == p.Leader
		if a.Taken = append(a.Taken, ok); ok {
			c.clamped = append(c.clamped, of)
			c.changeLocked(func(t *cluster.Topic) { t.Partitions[0].Unclamped = 0 })
		}
	}
	return a, nil
}

// electLocked takes what a leader asks for that has nobody beside it.
func (c *court) electLocked(change *cluster.Elect) cluster.Answer {
	of := change.Of[0]
	p := c.snapshot.ByID[topicID].Partitions[0]
	ok := of.Version == p.Version && c.snapshot.Nodes[of.Leader].BrokerEpoch == of.Unclean && len(p.ISR) == 1
	if ok {
		c.changeLocked(func(t *cluster.Topic) {
			p := &t.Partitions[0]
			p.Leader, p.LeaderEpoch, p.ISR = of.Leader, p.LeaderEpoch+1, []ident.NodeID{of.Leader}
			p.Unclean = p.LeaderEpoch
		})
	}
	return cluster.Answer{Taken: []bool{ok}}
}

func (c *court) insyncLocked(change *cluster.Insync) []bool {
	taken := make([]bool, len(change.Of))
	for i, of := range change.Of {
		p := c.snapshot.ByID[topicID].Partitions[0]
		if of.Version != p.Version || of.Epoch != p.LeaderEpoch || change.Leader.Node != p.Leader {
			continue
		}
		if slices.ContainsFunc(of.ISR, func(l cluster.Life) bool {
			return !slices.Contains(p.ISR, l.Node) && c.snapshot.Nodes[l.Node].BrokerEpoch != l.Epoch
		}) {
			continue
		}
		taken[i] = true
		c.changeLocked(func(t *cluster.Topic) {
			t.Partitions[0].ISR = nil
			for _, l := range of.ISR {
				t.Partitions[0].ISR = append(t.Partitions[0].ISR, l.Node)
			}
		})
	}
	return taken
}

// register begins another life of a node, which has lost what it held.
func (c *court) register(n ident.NodeID) cluster.Life {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := *c.snapshot
	now.Index++
	now.Nodes = maps.Clone(now.Nodes)
	now.Nodes[n] = &cluster.Node{ID: n, BrokerEpoch: ident.BrokerEpoch(now.Index), Activated: ident.BrokerEpoch(now.Index), State: cluster.Alive}
	c.snapshot = &now
	if slices.Contains(now.ByID[topicID].Partitions[0].ISR, n) {
		c.changeLocked(func(t *cluster.Topic) {
			t.Partitions[0].ISR = slices.DeleteFunc(slices.Clone(t.Partitions[0].ISR), func(m ident.NodeID) bool { return m == n })
		})
	} else {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	return now.Nodes[n].Life()
}

func (c *court) Report(context.Context, cluster.Suspicion) error { return nil }

// wires connect hosts in memory.
type wires struct {
	mu    sync.Mutex
	nodes map[ident.NodeID]*broker
	cut   map[ident.NodeID]bool // nobody reaches it, and it reaches nobody
	open  map[*wire]bool

	pushed, said atomic.Int64 // by whoever had it, over all streams
}

func (w *wires) isolate(n ident.NodeID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[n] = cut
	for x := range w.open {
		if x.f.Follower.Node == n || x.f.Leader.Node == n {
			x.cancel()
		}
	}
}

// wire is one stream.
type wire struct {
	f      rpc.Follow
	ctx    context.Context
	cancel context.CancelFunc
	up     chan rpc.FromFollower
	down   chan rpc.FromLeader

	// Held by who sends that way, be it a goroutine that goes on with what was posted.
	rising, falling sync.Mutex
	pushed, said    *atomic.Int64 // posts
}

func (w *wires) Follow(ctx context.Context, f rpc.Follow) (link.FollowerStream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	leader := w.nodes[f.Leader.Node]
	if leader == nil || w.cut[f.Leader.Node] || w.cut[f.Follower.Node] {
		return nil, fault.New(fault.LeaderUnavailable, "nobody there")
	}
	ctx, cancel := context.WithCancel(ctx)
	x := &wire{f: f, ctx: ctx, cancel: cancel, up: make(chan rpc.FromFollower), down: make(chan rpc.FromLeader), pushed: &w.pushed, said: &w.said}
	w.open[x] = true
	leader.serving.Go(func() {
		defer cancel()
		_ = leader.host.Links().Serve(ctx, f, leaderEnd{x})
		w.mu.Lock()
		delete(w.open, x)
		w.mu.Unlock()
	})
	return followerEnd{x}, nil
}

type (
	followerEnd struct{ *wire }
	leaderEnd   struct{ *wire }
)

func (e followerEnd) Send(m *rpc.FromFollower) error { return send(e.ctx, &e.rising, e.up, *m) }
func (e followerEnd) Post(m *rpc.FromFollower) error {
	e.said.Add(1)
	return post(e.ctx, &e.rising, e.up, *m)
}
func (e followerEnd) Ready() bool                  { return ready(&e.rising) }
func (e followerEnd) Recv(m *rpc.FromLeader) error { return recv(e.ctx, e.down, m) }
func (e leaderEnd) Send(m *rpc.FromLeader) error   { return send(e.ctx, &e.falling, e.down, *m) }
func (e leaderEnd) Post(m *rpc.FromLeader) error {
	e.pushed.Add(1)
	return post(e.ctx, &e.falling, e.down, *m)
}
func (e leaderEnd) Ready() bool                    { return ready(&e.falling) }
func (e leaderEnd) Recv(m *rpc.FromFollower) error { return recv(e.ctx, e.up, m) }
func (e leaderEnd) End()                           { e.cancel() }

func ready(way *sync.Mutex) bool {
	free := way.TryLock()
	if free {
		way.Unlock()
	}
	return free
}

func post[T any](ctx context.Context, way *sync.Mutex, c chan T, m T) error {
	way.Lock()
	go func() {
		defer way.Unlock()
		_ = hand(ctx, c, m)
	}()
	return nil
}

func send[T any](ctx context.Context, way *sync.Mutex, c chan T, m T) error {
	way.Lock()
	defer way.Unlock()
	return hand(ctx, c, m)
}

func hand[T any](ctx context.Context, c chan T, m T) error {
	select {
	case c <- m:
		return nil
	case <-ctx.Done():
		return io.ErrClosedPipe
	}
}

func recv[T any](ctx context.Context, c chan T, m *T) error {
	select {
	case *m = <-c:
		return nil
	case <-ctx.Done():
		return io.EOF
	}
}

// broker is a host on a folder, among others.
type broker struct {
	t       *testing.T
	id      ident.NodeID
	dir     string
	host    *Host
	store   *storage.Store
	serving sync.WaitGroup
	stop    func()

	renounced chan cluster.Life
	logged    *logged
}

// logged is what a broker has logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *wires) start(t *testing.T, c *court, id ident.NodeID, dir string) *broker {
	t.Helper()
	store, err := storage.Open(storage.Config{Dir: dir, JournalFileBytes: 1 << 20, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, id: id, dir: dir, store: store, renounced: make(chan cluster.Life, 1), logged: &logged{}}
	b.host = New(Config{
		Node: id, Store: store, Coordinator: c, Network: w, Renounce: func(l cluster.Life, _ error) { b.renounced <- l }, Lease: func(uint64) bool { return true }, Lag: 500 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(b.logged, nil)),
	})
	s, err := c.Next(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.host.Sweep(s), b.host.Apply(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	if err := b.host.Live(cluster.Life{Node: id, Epoch: 1}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	ran, stored := make(chan error, 1), make(chan error, 1)
	go func() { ran <- b.host.Run(ctx) }()
	go func() { stored <- store.Run(storeCtx) }()
	w.mu.Lock()
	w.nodes[id] = b
	w.mu.Unlock()
	b.stop = sync.OnceFunc(func() {
		w.mu.Lock()
		delete(w.nodes, id)
		w.mu.Unlock()
		cancel()
		b.serving.Wait()
		if err := <-ran; err != nil {
			t.Error("host:", err)
		}
		cancelStore()
		if err := <-stored; err != nil {
			t.Error("store:", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (w *wires) startAll(t *testing.T, c *court, ids ...ident.NodeID) []*broker {
	var all []*broker
	for _, id := range ids {
		all = append(all, w.start(t, c, id, t.TempDir()))
	}
	return all
}

func newWires() *wires {
	return &wires{nodes: map[ident.NodeID]*broker{}, cut: map[ident.NodeID]bool{}, open: map[*wire]bool{}}
}

var part = ident.Partition{Topic: topicID}

// publish tries until the record is acknowledged by all, wherever the leader is.
func publish(t *testing.T, c *court, brokers []*broker, producer byte, sequence int64) rpc.RecordResult {
	t.Helper()
	var b record.Builder
	b.Add(&record.Record{Value: fmt.Append(nil, producer, " ", sequence), ContentType: "text/plain", Producer: ident.ProducerID{producer}, Sequence: sequence})
	sealed := b.Seal()
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		leader := c.part().Leader
		for _, x := range brokers {
			if x.id != leader {
				continue
			}
			r, err := x.host.Replica(part)
			if err != nil {
				last = err
				break
			}
			done := make(chan rpc.Appended, 1)
			r.Append(rpc.Append{Partition: part, Batch: slices.Clone(sealed)}, func(a rpc.Appended) { done <- a })
			select {
			case a := <-done:
				if last = a.Err; last == nil {
					if a.Records[0].Err != nil {
						t.Fatal(a.Records[0].Err)
					}
					return a.Records[0]
				}
			case <-time.After(3 * time.Second):
				last = errors.New("no answer")
			}
		}
		<-time.After(2 * time.Millisecond)
	}
	t.Fatalf("record %d of %d was not kept: %v; partition %+v", sequence, producer, last, c.part())
	panic("not reached")
}

// await waits for something that comes about by itself.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// bytesOf is all that a replica's log holds.
func (b *broker) bytesOf() []byte {
	b.host.mu.RLock()
	h := b.host.replicas[part]
	b.host.mu.RUnlock()
	if h == nil {
		return nil
	}
	var all []byte
	at := record.At(h.log.Start())
	for {
		some, err := h.log.ReadFrom(at, 1<<20)
		if err != nil {
			b.t.Error(err)
			return nil
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
		for rest := some; len(rest) > 0; {
			one, more, err := record.Cut(rest)
			if err != nil {
				b.t.Fatal(err)
			}
			at, rest = at.After(one.Header()), more
		}
	}
}

// sameEverywhere waits until all are in sync, and holds their logs against one another.
func sameEverywhere(t *testing.T, c *court, brokers []*broker) {
	t.Helper()
	await(t, "a full ISR", func() bool { return len(c.part().ISR) == len(brokers) })
	await(t, "the same bytes everywhere", func() bool {
		first := brokers[0].bytesOf()
		for _, b := range brokers[1:] {
			if !bytes.Equal(first, b.bytesOf()) {
				return false
			}
		}
		return true
	})
}

var three = []ident.NodeID{{1}, {2}, {3}}

func TestRecordsAreOnEveryReplicaBeforeTheyAreAcknowledged(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	for i := range int64(50) {
		if r := publish(t, c, brokers, 1, i); r.Offset != ident.Offset(i) {
			t.Fatal(r)
		}
		for _, b := range brokers {
			b.host.mu.RLock()
			durable := b.host.replicas[part].log.DurablePosition()
			b.host.mu.RUnlock()
			if durable.Offset <= ident.Offset(i) && slices.Contains(c.part().ISR, b.id) {
				t.Fatalf("record %d is acknowledged, and node %d has %v on its disk", i, b.id[0], durable)
			}
		}
	}
	sameEverywhere(t, c, brokers)
}

// A record that is alone wakes no goroutine that only sends: neither at its leader, nor at
// the followers.
func TestWhatIsAloneIsSentByWhoeverHasIt(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	sequence := int64(0)
	await(t, "a record that is pushed and said to be held at once", func() bool {
		pushed, said := w.pushed.Load(), w.said.Load()
		publish(t, c, brokers, 1, sequence)
		sequence++
		return w.pushed.Load() > pushed && w.said.Load() > said
	})
}

func TestAFollowerThatIsGoneLeavesAndComesBack(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	publish(t, c, brokers, 1, 0)
	w.isolate(three[2], true)
	began := time.Now()
	publish(t, c, brokers, 1, 1)
	t.Log("the record after it took", time.Since(began))
	if isr := c.part().ISR; slices.Contains(isr, three[2]) {
		t.Fatal(isr)
	}
	for i := int64(2); i < 30; i++ {
		publish(t, c, brokers, 1, i)
	}
	w.isolate(three[2], false)
	sameEverywhere(t, c, brokers)
}

func TestTheNextLeaderHasEverythingAndOthersAreCutToIt(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	next := map[byte]int64{}
	for round := range 6 {
		for range 20 {
			publish(t, c, brokers, 1, next[1])
			next[1]++
		}
		old := c.part().Leader
		// The old leader goes on alone for a while: what it takes then is nobody's.
		w.isolate(old, true)
		for _, b := range brokers {
			if r, err := b.host.Replica(part); err == nil && b.id == old {
				var lone record.Builder
				lone.Add(&record.Record{Value: fmt.Append(nil, "lone ", round), ContentType: "text/plain"})
				r.Append(rpc.Append{Partition: part, Batch: lone.Seal()}, func(a rpc.Appended) {
					if a.Err == nil {
						t.Error("a leader without followers acknowledges")
					}
				})
			}
		}
		c.lead(three[(slices.Index(three, old)+1)%3], old)
		for range 5 {
			publish(t, c, brokers, 2, next[2])
			next[2]++
		}
		w.isolate(old, false)
		sameEverywhere(t, c, brokers)
	}
	seen := map[string]int{}
	for rest := brokers[1].bytesOf(); len(rest) > 0; {
		one, more, err := record.Cut(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = more
		it := one.Entries()
		for it.Next() {
			if e := it.Entry(); !e.Void {
				seen[string(e.Value)]++
			}
		}
	}
	for producer, n := range next {
		for i := range n {
			if k := string(fmt.Append(nil, producer, " ", i)); seen[k] != 1 {
				t.Errorf("record %s is there %d times", k, seen[k])
			}
		}
	}
	if n := len(seen); n != int(next[1]+next[2]) {
		t.Errorf("%d records, %v", n, slices.Sorted(maps.Keys(seen))[:1])
	}
}

func TestABrokerThatRestartsGoesOnWhereItWas(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	for i := range int64(20) {
		publish(t, c, brokers, 1, i)
	}
	brokers[2].stop()
	for i := int64(20); i < 40; i++ {
		publish(t, c, brokers, 1, i)
	}
	brokers[2] = w.start(t, c, three[2], brokers[2].dir)
	sameEverywhere(t, c, brokers)
	c.lead(three[2])
	if r := publish(t, c, brokers, 1, 39); !r.Duplicate || r.Offset != 39 {
		t.Fatalf("the new leader does not know a producer of before: %+v", r)
	}
	publish(t, c, brokers, 1, 40)
	sameEverywhere(t, c, brokers)
}

func TestAnUnknownAnswerOfTheCoordinatorIsNoAnswer(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	publish(t, c, brokers, 1, 0)
	c.mu.Lock()
	c.silent = true
	c.mu.Unlock()
	w.isolate(three[1], true)
	publish(t, c, brokers, 1, 1)
	w.isolate(three[1], false)
	sameEverywhere(t, c, brokers)
	publish(t, c, brokers, 1, 2)
}
