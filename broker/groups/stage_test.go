package groups

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

// stage is a cluster of a few brokers without disks: the logs are the same for all of them,
// and the coordinator is a few maps.
type stage struct {
	log   *memlog.Broker
	nodes map[ident.NodeID]*node

	mu       sync.Mutex
	snap     *cluster.Snapshot
	progress map[ident.GroupID]map[ident.Index]*tally
	appended map[string]map[string]ident.Offset // by dead-letter topic, by producer and sequence

	delay  time.Duration // of every change
	down   bool          // nobody answers, and nothing is made
	deaf   bool          // changes are made, and nobody hears of it
	refuse error         // of an append
	// refuseOwn refuses what is of no member.
	refuseOwn bool
	commits   []time.Time
	parts     int
	largest   int // bytes of a commit
	releases  int
	loads     int
}

// tally is a group's progress on a partition, record by record.
type tally struct {
	start, floor ident.Offset
	done         map[ident.Offset]string
	counts       map[ident.Offset]int
	intents      []cluster.Intent
	sequence     int64
}

// node is one broker.
type node struct {
	*Groups
	stage *stage
	id    ident.NodeID

	mu      sync.Mutex
	index   uint64
	unsure  bool                            // its lease is over
	decided uint64                          // when its lease was granted
	deaf    bool                            // it does not hear of changes
	epochs  map[ident.Partition]ident.Epoch // as it knows them
	reading func()                          // at each read, where it is not nil
}

var (
	n1 = ident.NodeID{1}
	n2 = ident.NodeID{2}
)

const handover = 2 * time.Second

// play runs a test with two brokers in a bubble.
func play(t *testing.T, f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, id := range []ident.NodeID{n1, n2} {
			n := s.node(id)
			wg.Go(func() {
				if err := n.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		f(t, s)
		cancel()
		wg.Wait()
	})
}

func newStage() *stage {
	s := &stage{log: memlog.New(), nodes: map[ident.NodeID]*node{}, progress: map[ident.GroupID]map[ident.Index]*tally{}, appended: map[string]map[string]ident.Offset{}}
	s.log.MaxMessageBytes = 1 << 20
	s.snap = &cluster.Snapshot{Index: 10, Groups: map[ident.TopicID]*cluster.GroupTable{}}
	s.topicsLocked()
	return s
}

func (s *stage) node(id ident.NodeID) *node {
	n := &node{stage: s, id: id, epochs: map[ident.Partition]ident.Epoch{}}
	n.Groups = New(Config{
		Self: id, Coordinator: s, Partitions: n, Network: s, Handover: handover, Logger: slog.New(slog.DiscardHandler),
		Lease: func(acted uint64) bool { n.mu.Lock(); defer n.mu.Unlock(); return !n.unsure && acted >= n.decided },
		Life:  func() cluster.Life { return cluster.Life{Node: id, Epoch: 1} },
	})
	s.nodes[id] = n
	return n
}

// topic makes one whose partitions the first broker leads.
func (s *stage) topic(name string, partitions int) *cluster.Topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.log.Topic(name, partitions)
	s.changeLocked(func(*cluster.Snapshot) {})
	return t
}

// topicsLocked takes over the topics that the log has.
func (s *stage) topicsLocked() {
	was := s.snap
	s.snap = &cluster.Snapshot{Index: was.Index + 1, Groups: maps.Clone(was.Groups), Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{}}
	for id, t := range s.log.Snapshot().ByID {
		if old := was.ByID[id]; old != nil {
			t = old
		} else {
			c := *t
			c.Modified = s.snap.Index
			t = &c
		}
		s.snap.Topics[t.Name], s.snap.ByID[id] = t, t
	}
}

// changeLocked makes a change that everybody hears of who hears anything.
func (s *stage) changeLocked(change func(*cluster.Snapshot)) {
	s.topicsLocked()
	change(s.snap)
	for _, n := range s.nodes {
		n.hear(s.snap)
	}
}

func (n *node) hear(snap *cluster.Snapshot) {
	n.mu.Lock()
	if n.deaf {
		n.mu.Unlock()
		return
	}
	for _, t := range snap.ByID {
		for _, p := range t.Partitions {
			n.epochs[t.Ref(p.Index)] = p.LeaderEpoch
		}
	}
	n.mu.Unlock()
	n.Apply(snap)
	n.mu.Lock()
	n.index = snap.Index
	n.mu.Unlock()
}

// lead gives a partition to another broker.
func (s *stage) lead(ref ident.Partition, to ident.NodeID) {
	s.log.Elect(ref, memlog.All)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(func(snap *cluster.Snapshot) {
		t := *snap.ByID[ref.Topic]
		t.Partitions = slices.Clone(t.Partitions)
		p, _ := t.Partition(ref.Index)
		p.Leader, p.LeaderEpoch, t.Modified = to, p.LeaderEpoch+1, snap.Index
		snap.Topics[t.Name], snap.ByID[t.ID] = &t, &t
	})
}

// group registers one that begins at 0.
func (s *stage) group(t *cluster.Topic, name string, tune func(*cluster.GroupSettings)) *cluster.Group {
	g := &cluster.Group{ID: ident.GroupID(uuid.NewSHA1(uuid.Nil, []byte(name))), Topic: t.ID, Name: name, Settings: cluster.GroupSettings{
		Mode: cluster.Exclusive, Lease: 30 * time.Second, Session: 10 * time.Second, MaxDeliveries: 3, Backoff: time.Second, DeadLetter: name + ".dlq", MaxInFlight: 256,
	}}
	if tune != nil {
		tune(&g.Settings)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress[g.ID] = map[ident.Index]*tally{}
	for _, p := range t.Partitions {
		s.progress[g.ID][p.Index] = newTally(0)
	}
	s.changeLocked(func(snap *cluster.Snapshot) {
		g.Modified = snap.Index
		snap.Groups[t.ID] = snap.Groups[t.ID].With(g)
	})
	return g
}

func newTally(at ident.Offset) *tally {
	return &tally{start: at, floor: at, done: map[ident.Offset]string{}, counts: map[ident.Offset]int{}}
}

// alter changes a group.
func (s *stage) alter(g *cluster.Group, change func(*cluster.Group)) *cluster.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now *cluster.Group
	s.changeLocked(func(snap *cluster.Snapshot) {
		c := *snap.Groups[g.Topic].Get(g.Name)
		c.Members, c.Owners = slices.Clone(c.Members), slices.Clone(c.Owners)
		c.Modified = snap.Index
		now = &c
		change(now)
		snap.Groups[g.Topic] = snap.Groups[g.Topic].With(now)
	})
	return now
}

// join begins a life of a member. In exclusive mode it gets what has no owner.
func (s *stage) join(g *cluster.Group, member string) cluster.MemberLife {
	now := s.alter(g, func(g *cluster.Group) {
		g.Members = slices.DeleteFunc(g.Members, func(m cluster.Member) bool { return m.ID == member })
		g.Members = append(g.Members, cluster.Member{ID: member, Epoch: ident.MemberEpoch(g.Modified)})
		slices.SortFunc(g.Members, func(a, b cluster.Member) int { return cmpText(a.ID, b.ID) })
		if g.Settings.Mode == cluster.Shared {
			return
		}
		for i := range s.progress[g.ID] {
			o := g.Owner(i)
			if o == nil {
				g.Owners = append(g.Owners, cluster.Owner{Partition: i, Released: true})
				slices.SortFunc(g.Owners, func(a, b cluster.Owner) int { return int(a.Partition) - int(b.Partition) })
				o = g.Owner(i)
			}
			if o.Member == "" || o.Member == member {
				o.Member, o.Epoch = member, ident.Assignment(g.Modified)
			}
		}
	})
	m, _ := now.Member(member)
	return cluster.MemberLife{Group: g.ID, Member: member, Epoch: m.Epoch}
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// lapse ends a member's life without a word of it.
func (s *stage) lapse(g *cluster.Group, member string, next string) {
	s.alter(g, func(g *cluster.Group) {
		g.Members = slices.DeleteFunc(g.Members, func(m cluster.Member) bool { return m.ID == member })
		for i := range g.Owners {
			if o := &g.Owners[i]; o.Member == member {
				*o = cluster.Owner{Partition: o.Partition, Member: next, Epoch: ident.Assignment(g.Modified)}
			}
		}
	})
}

// reset moves a group to an offset.
func (s *stage) reset(g *cluster.Group, to ident.Offset) {
	s.alter(g, func(g *cluster.Group) {
		g.Reset++
		for i := range s.progress[g.ID] {
			s.progress[g.ID][i] = newTally(to)
		}
	})
}

// Reached is of Partitions, like what follows.
func (n *node) Reached(ctx context.Context, index uint64) error {
	for {
		n.mu.Lock()
		there := n.index >= index
		n.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (n *node) Bounds(p ident.Partition) (rpc.Bounds, error) {
	b, err := n.stage.log.Bounds(context.Background(), p)
	n.mu.Lock()
	defer n.mu.Unlock()
	b.Epoch = n.epochs[p] // of a replica that does not hear, too
	return b, err
}

func (n *node) Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) {
	got, err := n.stage.log.Read(ctx, r)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reading != nil {
		n.reading()
	}
	got.Bounds.Epoch = n.epochs[r.Partition]
	return got, err
}

func (n *node) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	return n.stage.log.Wait(p, after)
}

// Append is of Network. It judges by the producer's sequences alone.
func (s *stage) Append(_ ident.NodeID, req rpc.Append, done func(rpc.Appended)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.snap.ByID[req.Partition.Topic]
	switch {
	case t == nil:
		done(rpc.Appended{Err: fault.New(fault.LeaderUnavailable, "no such topic")})
		return
	case s.refuse != nil:
		done(rpc.Appended{Records: []rpc.RecordResult{{Err: s.refuse}}})
		return
	}
	it := req.Batch.Entries()
	it.Next()
	e := it.Entry()
	if !e.Producer.System() {
		done(rpc.Appended{Err: fault.New(fault.Invalid, "a client appends")})
		return
	}
	id := fmt.Sprint(e.Producer, e.Sequence)
	if s.appended[t.Name] == nil {
		s.appended[t.Name] = map[string]ident.Offset{}
	}
	if o, ok := s.appended[t.Name][id]; ok {
		done(rpc.Appended{Records: []rpc.RecordResult{{Offset: o, Duplicate: true}}})
		return
	}
	r := e.Record
	o, _ := s.log.AppendRecord(req.Partition, &r)
	s.appended[t.Name][id] = o
	done(rpc.Appended{Records: []rpc.RecordResult{{Offset: o}}})
}

// Progress is of Coordinator.
func (s *stage) Progress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	if !s.passes(ctx) {
		return nil, fault.New(fault.CoordinatorUnavailable, "nobody leads")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	var out []cluster.GroupProgress
	if of.Dying {
		for g := range s.snap.Groups[of.Partition.Topic].All() {
			if len(s.progress[g.ID][of.Partition.Index].intents) > 0 && bytes.Compare(g.ID[:], of.Beyond[:]) > 0 {
				out = append(out, cluster.GroupProgress{Group: g.ID, Reset: g.Reset})
			}
		}
		slices.SortFunc(out, func(a, b cluster.GroupProgress) int { return bytes.Compare(a.Group[:], b.Group[:]) })
		return out[:min(len(out), cluster.MaxProgress)], nil
	}
	wanted := map[ident.GroupID]bool{}
	for _, id := range of.Groups {
		wanted[id] = true
	}
	for g := range s.snap.Groups[of.Partition.Topic].All() {
		if wanted[g.ID] {
			out = append(out, cluster.GroupProgress{Group: g.ID, Reset: g.Reset, Progress: s.progress[g.ID][of.Partition.Index].progress(of.Partition.Index)})
		}
	}
	return out, nil
}

func (t *tally) progress(i ident.Index) cluster.Progress {
	p := cluster.Progress{Partition: i, Start: t.start, Floor: t.floor, Intents: slices.Clone(t.intents), Sequence: t.sequence}
	if t.start > 0 {
		p.Skipped = []cluster.Span{{From: 0, To: t.start}}
	}
	for _, o := range slices.Sorted(maps.Keys(t.done)) {
		one := cluster.Span{From: o, To: o + 1}
		if o >= t.floor {
			p.Done = append(p.Done, one)
		}
		switch t.done[o] {
		case "dead":
			p.Dead = append(p.Dead, one)
		case "expired":
			p.Expired = append(p.Expired, one)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(t.counts)) {
		p.Counts = append(p.Counts, cluster.Count{Offset: o, Deliveries: t.counts[o]})
	}
	return p
}

// passes says whether the coordinator is reached.
func (s *stage) passes(ctx context.Context) bool {
	s.mu.Lock()
	d, down := s.delay, s.down
	s.mu.Unlock()
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return false
		}
	}
	return !down
}

// Propose is of Coordinator.
func (s *stage) Propose(ctx context.Context, c cluster.Change) (a cluster.Answer, err error) {
	began := time.Now()
	if !s.passes(ctx) {
		return a, fault.New(fault.CoordinatorUnavailable, "nobody leads")
	}
	switch {
	case c.Commit != nil:
		s.mu.Lock()
		s.commits = append(s.commits, began)
		kept, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		s.largest = max(s.largest, len(kept))
		for _, of := range c.Commit.Of {
			a.Taken = append(a.Taken, s.takeLocked(c.Commit.Leader, of))
		}
		s.parts += len(c.Commit.Of)
	case c.Release != nil:
		for _, of := range c.Release.Of {
			a.Taken = append(a.Taken, s.release(of))
		}
		s.mu.Lock()
		s.releases++
	case c.Create != nil:
		spec := c.Create.Spec
		s.topic(spec.Name, *spec.Partitions)
		s.mu.Lock()
	default:
		return a, fault.New(fault.Invalid, "not on this stage")
	}
	defer s.mu.Unlock()
	a.Index = s.snap.Index
	if s.deaf {
		return cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "nobody knows")
	}
	return a, nil
}

func (s *stage) takeLocked(leader cluster.Life, of cluster.CommitOf) bool {
	for _, table := range s.snap.Groups {
		for g := range table.All() {
			if g.ID != of.Group {
				continue
			}
			p, _ := s.snap.ByID[g.Topic].Partition(of.Partition)
			o := g.Owner(of.Partition)
			m, there := g.Member(of.Member)
			switch {
			case s.refuseOwn && of.Assignment == 0 && of.Member == "":
				return false
			case p.Leader != leader.Node || p.LeaderEpoch != of.Leader || g.Reset != of.Reset:
				return false
			case of.Assignment != 0 && (o == nil || o.Epoch != of.Assignment):
				return false
			case of.Member != "" && (!there || m.Epoch != of.Epoch):
				return false
			}
			s.progress[g.ID][of.Partition].take(of)
			return true
		}
	}
	return false
}

func (t *tally) take(of cluster.CommitOf) {
	for _, span := range of.Done {
		for o := span.From; o < span.To; o++ {
			if t.done[o] == "" {
				t.done[o] = "processed"
			}
			delete(t.counts, o)
		}
	}
	for _, c := range of.Counts {
		if t.done[c.Offset] == "" {
			t.counts[c.Offset] = c.Deliveries
		}
	}
	for _, i := range of.Intents {
		if !slices.ContainsFunc(t.intents, func(old cluster.Intent) bool { return old.Offset == i.Offset }) && t.done[i.Offset] == "" {
			t.intents = append(t.intents, i)
			t.sequence = max(t.sequence, i.Sequence+1)
		}
	}
	for _, o := range of.Published {
		t.intents = slices.DeleteFunc(t.intents, func(i cluster.Intent) bool { return i.Offset == o })
		if t.done[o] == "" {
			t.done[o] = "dead"
		}
	}
	for o := t.floor; o < of.Start; o++ {
		if t.done[o] == "" {
			t.done[o] = "expired"
		}
	}
	for t.done[t.floor] != "" {
		t.floor++
	}
}

func (s *stage) release(of cluster.ReleaseOf) bool {
	s.mu.Lock()
	var g *cluster.Group
	for _, table := range s.snap.Groups {
		for other := range table.All() {
			if other.ID == of.Group {
				g = other
			}
		}
	}
	s.mu.Unlock()
	o := g.Owner(of.Partition)
	if o == nil || o.Epoch != of.Epoch || o.Notice != of.Notice || o.Next == "" || !of.Drained {
		return false
	}
	s.alter(g, func(g *cluster.Group) {
		o := g.Owner(of.Partition)
		*o = cluster.Owner{Partition: o.Partition, Member: o.Next, Epoch: ident.Assignment(g.Modified), Released: true}
	})
	return true
}

// tally is what a group has done on partition 0.
func (s *stage) tally(g *cluster.Group) (floor ident.Offset, done map[ident.Offset]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.progress[g.ID][0]
	return t.floor, maps.Clone(t.done)
}

// take takes from partition 0, and says what as "offset/delivery".
func (n *node) take(t *testing.T, ref ident.Partition, by cluster.MemberLife, limit int, wait time.Duration) (leases []rpc.Lease, err error) {
	t.Helper()
	taken, err := n.Take(t.Context(), rpc.Take{MemberLife: by, Partitions: []ident.Partition{ref}, Limit: limit, MaxBytes: 1 << 20, Wait: wait})
	if err != nil {
		return nil, err
	}
	of := taken.Of[0]
	holds(t, of)
	return of.Leases, of.Err
}

// holds checks that an answer has the records that it leases.
func holds(t *testing.T, of rpc.TakenOf) {
	t.Helper()
	there := map[ident.Offset]bool{}
	last := ident.Offset(-1)
	for rest := of.Batches; len(rest) > 0; {
		b, next, err := record.Cut(rest)
		if err != nil {
			t.Fatal(err)
		}
		if b.Header().Base <= last {
			t.Error("batches are not in order")
		}
		last = b.Header().Base
		for it := b.Entries(); it.Next(); {
			there[b.Header().Base+ident.Offset(it.Entry().Delta)] = true
		}
		rest = next
	}
	for _, l := range of.Leases {
		if !there[l.Offset] {
			t.Errorf("the record at offset %d is not there", l.Offset)
		}
	}
}

func said(leases []rpc.Lease) (out []string) {
	for _, l := range leases {
		out = append(out, fmt.Sprintf("%d/%d", l.Offset, l.Delivery))
	}
	return out
}

// takes expects certain leases.
func (n *node) takes(t *testing.T, ref ident.Partition, by cluster.MemberLife, limit int, wait time.Duration, want ...string) {
	t.Helper()
	leases, err := n.take(t, ref, by, limit, wait)
	if err != nil || !slices.Equal(said(leases), want) {
		t.Fatalf("took %q, %v; want %q", said(leases), err, want)
	}
}

// settle settles on one partition, and gives what was stale by its code.
func (n *node) settle(t *testing.T, by cluster.MemberLife, of rpc.SettleOf) (stale map[ident.Offset]string, err error) {
	t.Helper()
	done, err := n.Settle(t.Context(), rpc.Settle{MemberLife: by, Of: []rpc.SettleOf{of}})
	if err != nil {
		return nil, err
	}
	stale = map[ident.Offset]string{}
	for _, s := range done.Of[0].Stale {
		stale[s.Offset] = fault.KindOf(s.Err).Code()
	}
	return stale, done.Of[0].Err
}

// settles is settle where all is taken.
func (n *node) settles(t *testing.T, by cluster.MemberLife, of rpc.SettleOf) {
	t.Helper()
	if stale, err := n.settle(t, by, of); err != nil || len(stale) > 0 {
		t.Fatalf("%v, %v", stale, err)
	}
}

func (n *node) acks(t *testing.T, ref ident.Partition, by cluster.MemberLife, offsets ...ident.Offset) {
	t.Helper()
	n.settles(t, by, rpc.SettleOf{Partition: ref, Through: -1, Ack: offsets})
}

func (s *stage) released() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releases
}

func (s *stage) loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

// set changes how the coordinator and the dead-letter topics are.
func (s *stage) set(f func(s *stage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}
