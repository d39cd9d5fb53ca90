package rpc

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
)

func TestReads(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	b := &broker{}
	s.Broker(b)
	r := toB(t, peersTo(t, s.Addr()))
	batches := bytes.Repeat([]byte("b"), 1<<20)
	asked := Read{Partition: topic, Offset: 40, MaxBytes: 1 << 20}
	b.read = func(got Read) (ReadResult, error) {
		if got != asked {
			t.Errorf("asked for %+v", got)
		}
		return ReadResult{batches, Bounds{3, 99, 7}}, nil
	}
	got, err := r.Read(t.Context(), asked, 0)
	if err != nil || !bytes.Equal(got.Batches, batches) || got.Bounds != (Bounds{3, 99, 7}) {
		t.Errorf("%d bytes, %+v, %v", len(got.Batches), got.Bounds, err)
	}
	b.read = func(Read) (ReadResult, error) {
		return ReadResult{Bounds: Bounds{3, 99, 7}}, fault.New(fault.OffsetExpired, "gone").With("start", int64(3))
	}
	if got, err = r.Read(t.Context(), asked, time.Minute); !fault.Is(err, fault.OffsetExpired) || got.Bounds.Start != 3 || fault.As(err).Fields["start"] != int64(3) {
		t.Errorf("%+v, %v", got, err)
	}
	if o, err := r.OffsetAt(t.Context(), topic, 41); o != 42 || err != nil {
		t.Error(o, err)
	}
	if _, err := r.EpochEnd(t.Context(), topic, 4); !fault.Is(err, fault.Fenced) || fault.As(err).Fields["expected"] != int64(9) {
		t.Error(err)
	}
}

// A read waits for records, until there are some, its time is up, or the partition is
// served no longer.
func TestReadsThatWait(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	b := &broker{}
	s.Broker(b)
	r := toB(t, peersTo(t, s.Addr()))
	reads := 0
	b.read = func(Read) (ReadResult, error) {
		if reads++; reads == 1 {
			return ReadResult{}, nil
		}
		return ReadResult{Batches: []byte("b")}, nil
	}
	more, waiting := make(chan struct{}), make(chan struct{}, 1)
	b.wait = func(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
		if p != topic || after != 40 {
			t.Errorf("waits at %v, %d", p, after)
		}
		waiting <- struct{}{}
		return more, nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := r.Read(t.Context(), Read{Partition: topic, Offset: 40}, time.Minute); err != nil || string(got.Batches) != "b" {
			t.Errorf("%q, %v", got.Batches, err)
		}
	})
	await(t, waiting)
	close(more)
	wg.Wait()

	reads, more = 0, make(chan struct{})
	if got, err := r.Read(t.Context(), Read{Partition: topic, Offset: 40}, time.Millisecond); err != nil || len(got.Batches) != 0 {
		t.Errorf("%q, %v", got.Batches, err)
	}
	<-waiting
	reads = 0
	wg.Go(func() { // the server stops under it
		if got, err := r.Read(t.Context(), Read{Partition: topic, Offset: 40}, time.Minute); err != nil || len(got.Batches) != 0 {
			t.Errorf("%q, %v", got.Batches, err)
		}
	})
	await(t, waiting)
	s.stop()
	wg.Wait()
}

func TestBoundsOfMany(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	b := &broker{}
	s.Broker(b)
	r := toB(t, peersTo(t, s.Addr()))
	var mu sync.Mutex
	hw := map[ident.Partition]ident.Offset{}
	more, waits := make(chan struct{}), make(chan struct{}, 10)
	b.bounds = func(p ident.Partition) (Bounds, error) {
		mu.Lock()
		defer mu.Unlock()
		if p.Index == 9 {
			return Bounds{}, fault.New(fault.LeaderUnavailable, "not here")
		}
		return Bounds{HW: hw[p], Epoch: 2}, nil
	}
	b.wait = func(p ident.Partition, _ ident.Offset) (<-chan struct{}, error) {
		waits <- struct{}{}
		if p.Index == 2 {
			return more, nil
		}
		return make(chan struct{}), nil
	}
	p := func(i ident.Index) ident.Partition { return ident.Partition{Topic: topic.Topic, Index: i} }
	got, err := r.ManyBounds(t.Context(), []BoundsOf{{p(1), -1}, {p(9), -1}}, time.Minute) // nothing to wait for
	if err != nil || got[0] != (BoundsAnswer{Bounds: Bounds{Epoch: 2}}) || !fault.Is(got[1].Err, fault.LeaderUnavailable) {
		t.Errorf("%+v, %v", got, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := r.ManyBounds(t.Context(), []BoundsOf{{p(1), 0}, {p(2), 4}, {p(3), -1}}, time.Minute)
		if err != nil || got[1].Bounds.HW != 5 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	await(t, waits)
	await(t, waits)
	mu.Lock()
	hw[p(2)] = 5
	mu.Unlock()
	close(more)
	wg.Wait()
	if one, err := r.Bounds(t.Context(), p(2), 4, time.Minute); err != nil || one.HW != 5 {
		t.Errorf("%+v, %v", one, err)
	}
	if one, err := r.Bounds(t.Context(), p(3), 4, time.Millisecond); err != nil || one.HW != 0 {
		t.Errorf("%+v, %v", one, err)
	}
	if _, err := r.ManyBounds(t.Context(), make([]BoundsOf, maxBounds+1), 0); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// coordinator answers what it was asked, or an error.
type coordinator struct {
	err   error
	watch func(ctx context.Context, from uint64, send func(cluster.Message) error) error

	request cluster.RequestID
	change  cluster.Change
	renewal cluster.Renewal
	report  cluster.Suspicion
	join    cluster.Join
	signs   []cluster.SignOfLife
	of      cluster.ProgressOf
	done    []cluster.GroupProgress
	caller  cluster.Life
}

var (
	answered = cluster.Answer{Index: 8, Created: true, Taken: []bool{true, false}, Refusal: &cluster.Refusal{Code: "topic-exists", Differs: []string{"a"}}}
	granted  = cluster.Lease{For: 2 * time.Second, Index: 12, Leader: nodeB, Suspects: []ident.NodeID{nodeA}}
	joined   = cluster.Joined{Cluster: theirs, Voter: true}
)

func (c *coordinator) ServePropose(ctx context.Context, r cluster.RequestID, change cluster.Change) (cluster.Answer, error) {
	c.request, c.change, c.caller = r, change, Caller(ctx)
	return answered, c.err
}

func (c *coordinator) ServeRenew(_ context.Context, r cluster.Renewal) (cluster.Lease, error) {
	c.renewal = r
	return granted, c.err
}

func (c *coordinator) ServeReport(_ context.Context, s cluster.Suspicion) error {
	c.report = s
	return c.err
}

func (c *coordinator) ServeJoin(_ context.Context, j cluster.Join) (cluster.Joined, error) {
	c.join = j
	return joined, c.err
}

func (c *coordinator) ServeWatch(ctx context.Context, from uint64, send func(cluster.Message) error) error {
	return c.watch(ctx, from, send)
}

func (c *coordinator) ServeTouch(_ context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	c.signs = signs
	return cluster.Lost{Lives: []int{1}}, c.err
}

func (c *coordinator) ServeProgress(_ context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	c.of = of
	return c.done, c.err
}

func (c *coordinator) ServeDecided(context.Context) (uint64, error) { return 1 << 60, c.err }

func TestCallsOfTheCoordinator(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	r := toB(t, peersTo(t, s.Addr()))
	request := cluster.RequestID{1, 2, 3}
	change := cluster.Change{Insync: &cluster.Insync{Leader: cluster.Life{Node: nodeA, Epoch: 2}, Of: []cluster.InsyncOf{{Partition: topic, Epoch: 4, Version: 5}}}}
	if _, err := r.Propose(t.Context(), request, change); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a node that is no coordinator: %v", err)
	}
	c := &coordinator{}
	s.Coordinator(c)
	a, err := r.Propose(t.Context(), request, change)
	if err != nil || !reflect.DeepEqual(a, answered) || c.request != request || !reflect.DeepEqual(c.change, change) {
		t.Errorf("%+v, %v of %v %+v", a, err, c.request, c.change)
	}
	if c.caller != (cluster.Life{Node: nodeA, Epoch: 2}) {
		t.Errorf("called by %+v", c.caller)
	}
	life := cluster.Life{Node: nodeA, Epoch: 2}
	if l, err := r.Renew(t.Context(), cluster.Renewal{Life: life, Full: true}); err != nil || !reflect.DeepEqual(l, granted) || c.renewal != (cluster.Renewal{Life: life, Full: true}) {
		t.Errorf("%+v, %v", l, err)
	}
	suspicion := cluster.Suspicion{From: nodeA, Life: cluster.Life{Node: nodeB, Epoch: 1}, Refused: true}
	if err := r.Report(t.Context(), suspicion); err != nil || c.report != suspicion {
		t.Errorf("%+v, %v", c.report, err)
	}
	join := cluster.Join{Node: nodeA, Raft: "h:1", Cluster: theirs, Last: 4}
	if j, err := r.Join(t.Context(), join); err != nil || j != joined || c.join != join {
		t.Errorf("%+v, %v", j, err)
	}
	by := Coordinators{peersTo(t, s.Addr())}
	if a, err := by.Propose(t.Context(), nodeB, request, change); err != nil || !reflect.DeepEqual(a, answered) {
		t.Errorf("%+v, %v", a, err)
	}
	if l, err := by.Renew(t.Context(), nodeB, cluster.Renewal{Life: life}); err != nil || !reflect.DeepEqual(l, granted) {
		t.Errorf("%+v, %v", l, err)
	}
	if j, err := by.Join(t.Context(), nodeB, join); err != nil || j != joined {
		t.Errorf("%+v, %v", j, err)
	}
	if err := by.Report(t.Context(), nodeB, suspicion); err != nil {
		t.Error(err)
	}
	if _, err := by.Propose(t.Context(), nodeA, request, change); !fault.Is(err, fault.CoordinatorUnavailable) || fault.As(err).Fields[cluster.FieldKept] != "no" {
		t.Errorf("a node that is not known: %v", err)
	}
	if index, err := r.Decided(t.Context()); err != nil || index != 1<<60 {
		t.Errorf("%d, %v", index, err)
	}
	if index, err := by.Decided(t.Context(), nodeB); err != nil || index != 1<<60 {
		t.Errorf("%d, %v", index, err)
	}
	if _, err := by.Decided(t.Context(), nodeA); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a node that is not known: %v", err)
	}
	life1 := cluster.MemberLife{Group: ident.GroupID{5}, Member: "m~1", Epoch: 1 << 60}
	signs := []cluster.SignOfLife{{MemberLife: life1, Ago: 70 * time.Millisecond}, {MemberLife: cluster.MemberLife{Group: ident.GroupID{6}, Member: "n"}}}
	for _, touch := range []func() (cluster.Lost, error){
		func() (cluster.Lost, error) { return r.Touch(t.Context(), signs) },
		func() (cluster.Lost, error) { return by.Touch(t.Context(), nodeB, signs) },
	} {
		c.signs = nil
		if lost, err := touch(); err != nil || !reflect.DeepEqual(lost, cluster.Lost{Lives: []int{1}}) || !reflect.DeepEqual(c.signs, signs) {
			t.Errorf("%+v, %v of %+v", lost, err, c.signs)
		}
	}
	if _, err := r.Touch(t.Context(), signs[:1]); !fault.Is(err, fault.CoordinatorUnavailable) { // it tells of one that was not sent
		t.Error(err)
	}
	if _, err := r.Touch(t.Context(), make([]cluster.SignOfLife, cluster.MaxSigns+1)); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	c.err = fault.New(fault.CoordinatorUnavailable, "another leads").With(cluster.FieldLeader, nodeA.String())
	for _, err := range []error{
		func() error { _, err := r.Propose(t.Context(), request, change); return err }(),
		func() error { _, err := r.Renew(t.Context(), cluster.Renewal{Life: life}); return err }(),
		func() error { _, err := r.Join(t.Context(), join); return err }(),
		r.Report(t.Context(), suspicion),
		func() error { _, err := r.Touch(t.Context(), signs); return err }(),
		func() error { _, err := r.Progress(t.Context(), cluster.ProgressOf{}); return err }(),
		func() error { _, err := r.Decided(t.Context()); return err }(),
	} {
		if f := fault.As(err); f.Kind != fault.CoordinatorUnavailable || f.Fields[cluster.FieldLeader] != nodeA.String() {
			t.Errorf("%+v", err)
		}
	}
}

// What groups have done comes whole, however much it is.
func TestProgressComesInParts(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	r := toB(t, peersTo(t, s.Addr()))
	of := cluster.ProgressOf{Partition: topic, After: 77}
	if _, err := r.Progress(t.Context(), of); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a node that is no coordinator: %v", err)
	}
	c := &coordinator{}
	s.Coordinator(c)
	for i := range cluster.MaxProgress {
		p := cluster.GroupProgress{Group: ident.GroupID{byte(i), 1}, Reset: uint64(i), Progress: cluster.Progress{Partition: topic.Index, Floor: 5, Start: 1, Sequence: 9}}
		if i == 7 { // much, in the widest form
			for k := range ident.Offset(cluster.MaxUnfinished / 4) {
				o := 1<<61 + 3*k
				p.Done = append(p.Done, cluster.Span{From: o, To: o + 1})
				p.Counts = append(p.Counts, cluster.Count{Offset: o + 1, Deliveries: 1000})
				p.Intents = append(p.Intents, cluster.Intent{Offset: o + 2, Sequence: int64(o), Deliveries: 1000, Reason: strings.Repeat("\x01", cluster.MaxReasonBytes)})
			}
		}
		of.Groups, c.done = append(of.Groups, p.Group), append(c.done, p)
	}
	for _, ask := range []func() ([]cluster.GroupProgress, error){
		func() ([]cluster.GroupProgress, error) { return r.Progress(t.Context(), of) },
		func() ([]cluster.GroupProgress, error) {
			return Coordinators{peersTo(t, s.Addr())}.Progress(t.Context(), nodeB, of)
		},
	} {
		c.of = cluster.ProgressOf{}
		got, err := ask()
		if err != nil || !reflect.DeepEqual(got, c.done) || !reflect.DeepEqual(c.of, of) {
			t.Fatalf("%d of %d groups, %v", len(got), len(c.done), err)
		}
	}
	if got, err := r.Progress(t.Context(), cluster.ProgressOf{Partition: topic}); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("more than was asked for: %d, %v", len(got), err)
	}
	c.done = nil
	if got, err := r.Progress(t.Context(), of); err != nil || len(got) != 0 {
		t.Errorf("%d groups, %v", len(got), err)
	}
	dying := cluster.ProgressOf{Partition: topic, After: 78, Dying: true, Beyond: ident.GroupID{7}}
	c.done = []cluster.GroupProgress{{Group: ident.GroupID{8}, Reset: 3}}
	if got, err := r.Progress(t.Context(), dying); err != nil || !reflect.DeepEqual(got, c.done) || !reflect.DeepEqual(c.of, dying) {
		t.Errorf("%+v of %+v, %v", got, c.of, err)
	}
	of.Groups = append(of.Groups, ident.GroupID{})
	if _, err := r.Progress(t.Context(), of); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// What may have been made is an unknown outcome, what cannot have been is not.
func TestABrokenProposal(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	hung, release := make(chan struct{}), make(chan struct{})
	s.Coordinator(&hangs{hung: hung, release: release})
	r := toB(t, peersTo(t, s.Addr()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Propose(t.Context(), cluster.RequestID{1}, cluster.Change{}); !fault.Is(err, fault.UnknownOutcome) {
			t.Errorf("a proposal under way: %v", err)
		}
	})
	await(t, hung)
	_ = r.live.Load().Close()
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if _, err := r.Propose(ctx, cluster.RequestID{1}, cluster.Change{}); !fault.Is(err, fault.UnknownOutcome) {
			t.Errorf("a proposal that was given up: %v", err)
		}
	})
	await(t, hung)
	cancel()
	wg.Wait()
	close(release)
	s.stop()
	parted(t, r)
	if _, err := r.Propose(t.Context(), cluster.RequestID{1}, cluster.Change{}); !fault.Is(err, fault.CoordinatorUnavailable) || fault.As(err).Fields[cluster.FieldKept] != "no" {
		t.Errorf("nobody there: %v", err)
	}
	wrong := serve(t, ServerConfig{Cluster: func() ident.ClusterID { return ident.ClusterID{9} }}, "127.0.0.1:0")
	wrong.Coordinator(&coordinator{})
	if _, err := toB(t, peersTo(t, wrong.Addr())).Propose(t.Context(), cluster.RequestID{1}, cluster.Change{}); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("another cluster: %v", err)
	}
}

type hangs struct {
	coordinator
	hung    chan struct{}
	release chan struct{}
}

func (h *hangs) ServePropose(ctx context.Context, _ cluster.RequestID, _ cluster.Change) (cluster.Answer, error) {
	h.hung <- struct{}{}
	select {
	case <-ctx.Done():
	case <-h.release:
	}
	return cluster.Answer{}, nil
}

func TestWatches(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	topics := &cluster.Snapshot{Index: 8, Cluster: theirs, Nodes: map[ident.NodeID]*cluster.Node{nodeA: {ID: nodeA, Name: "a"}}}
	news := topics.Since(cluster.Mark{})
	c := &coordinator{watch: func(ctx context.Context, from uint64, send func(cluster.Message) error) error {
		if from != 7 {
			t.Errorf("from %d", from)
		}
		if err := send(cluster.Message{News: news, Index: 8, Leader: nodeB, Heard: time.Second}); err != nil {
			return err
		}
		if err := send(cluster.Message{Index: 8}); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	s.Coordinator(c)
	r := toB(t, peersTo(t, s.Addr()))
	var got []cluster.Message
	enough := errors.New("enough")
	err := r.Watch(t.Context(), 7, func(m cluster.Message) error {
		if got = append(got, m); len(got) == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || got[0].Heard != time.Second || got[0].Leader != nodeB || !reflect.DeepEqual(got[0].News, news) || got[1].News != nil {
		t.Errorf("%+v, %v", got, err)
	}
	// The server's stop ends it in order, and does not wait until it is cut.
	beats := make(chan struct{}, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Watch(t.Context(), 7, func(cluster.Message) error { beats <- struct{}{}; return nil }); !fault.Is(err, fault.Draining) {
			t.Error(err)
		}
	})
	await(t, beats)
	await(t, beats)
	s.stop()
	wg.Wait()
	c.watch = func(context.Context, uint64, func(cluster.Message) error) error {
		return fault.New(fault.CoordinatorUnavailable, "deaf")
	}
	again := serve(t, ServerConfig{}, "127.0.0.1:0")
	again.Coordinator(c)
	r = toB(t, peersTo(t, again.Addr()))
	if err := r.Watch(t.Context(), 7, nil); !fault.Is(err, fault.CoordinatorUnavailable) || fault.As(err).Detail() != "deaf" {
		t.Error(err)
	}
	c.watch = func(context.Context, uint64, func(cluster.Message) error) error { return nil }
	if err := r.Watch(t.Context(), 7, nil); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Error(err)
	}
}

type node struct {
	principal, closed string
	replies
}

func (n *node) Figures(context.Context) ([]byte, error) { return []byte(`{"a":1}`), nil }

func (n *node) Connections(_ context.Context, p string) ([]byte, error) {
	n.principal = p
	return []byte(`[]`), nil
}

func (n *node) Disconnect(_ context.Context, c string) (bool, error) {
	n.closed = c
	return c == "c1", nil
}

func (n *node) HandReply(_ context.Context, to string, r *inbox.Reply) (Handed, error) {
	return n.keep(to, r)
}

func (n *node) CollectReply(ctx context.Context, to string, wait time.Duration) (Collected, error) {
	return n.collect(ctx, to, 0, wait)
}

func TestCallsOfANode(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	r := toB(t, peersTo(t, s.Addr()))
	if _, err := r.Disconnect(t.Context(), "c1"); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
	n := &node{}
	s.Node(n)
	if b, err := r.Figures(t.Context()); string(b) != `{"a":1}` || err != nil {
		t.Errorf("%s %v", b, err)
	}
	if b, err := r.Connections(t.Context(), "bob"); string(b) != `[]` || err != nil || n.principal != "bob" {
		t.Errorf("%s %v", b, err)
	}
	for id, want := range map[string]bool{"c1": true, "c2": false} {
		if found, err := r.Disconnect(t.Context(), id); found != want || err != nil || n.closed != id {
			t.Error(found, err)
		}
	}
}
