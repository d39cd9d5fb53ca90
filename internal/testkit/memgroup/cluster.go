package memgroup

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Log is topics and their records.
type Log interface {
	Snapshot() *cluster.Snapshot
	Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error)
	Bounds(ctx context.Context, p ident.Partition) (rpc.Bounds, error)
	Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error)
}

// Cluster is the coordinator and the brokers.
type Cluster struct {
	log Log

	mu      sync.Mutex
	base    *cluster.Snapshot
	index   uint64
	snap    *cluster.Snapshot
	changed chan struct{} // closed and made anew with every change of anything
	groups  map[ident.GroupID]*kept
	leaders map[ident.Partition]ident.NodeID
	fails   map[ident.NodeID]func(call string) error
	touched []cluster.SignOfLife
	deaf    error // of the coordinator
	calls   map[string]int
}

// kept is one group.
type kept struct {
	cluster.Group
	parts map[ident.Index]*part
}

// part is a group on one partition.
type part struct {
	start, floor ident.Offset
	records      map[ident.Offset]*fate // from the floor on; nil: received
}

type fate struct {
	state      rpc.RecordState
	member     string
	epoch      ident.MemberEpoch
	until      time.Time // of the lease, or of the backoff
	deliveries int
	by         rpc.Hearing // the take that leased it; zero: its answer came
}

// New makes a cluster over logs.
func New(log Log) *Cluster {
	return &Cluster{
		log: log, changed: make(chan struct{}), groups: map[ident.GroupID]*kept{},
		leaders: map[ident.Partition]ident.NodeID{}, fails: map[ident.NodeID]func(string) error{}, calls: map[string]int{},
	}
}

// Snapshot is the topics of the log with the groups there are.
func (c *Cluster) Snapshot() *cluster.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshotLocked()
}

// CatchUp has nothing to do: nothing is decided anywhere else.
func (c *Cluster) CatchUp(context.Context) {}

func (c *Cluster) snapshotLocked() *cluster.Snapshot {
	if base := c.log.Snapshot(); base != c.base || c.snap == nil {
		c.base = base
		c.publishLocked()
	}
	return c.snap
}

// publishLocked makes a snapshot of what there is now.
func (c *Cluster) publishLocked() {
	if c.base == nil {
		c.base = c.log.Snapshot()
	}
	c.index++
	s := *c.base
	s.Index = c.index
	s.Topics, s.ByID = maps.Clone(s.Topics), maps.Clone(s.ByID)
	for ref, leader := range c.leaders {
		t := s.ByID[ref.Topic]
		if p, ok := t.Partition(ref.Index); ok && p.Leader != leader {
			moved := *t
			moved.Partitions = slices.Clone(t.Partitions)
			p, _ := moved.Partition(ref.Index)
			p.Leader = leader
			s.Topics[t.Name], s.ByID[t.ID] = &moved, &moved
		}
	}
	s.Groups = map[ident.TopicID]*cluster.GroupTable{}
	for _, g := range c.groups {
		if s.ByID[g.Topic] != nil {
			of := g.Group
			of.Members, of.Owners = slices.Clone(g.Members), slices.Clone(g.Owners)
			s.Groups[g.Topic] = s.Groups[g.Topic].With(&of)
		}
	}
	c.snap = &s
	c.wakeLocked()
}

func (c *Cluster) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Next waits for a snapshot newer than an index.
func (c *Cluster) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	for {
		c.mu.Lock()
		s, changed := c.snapshotLocked(), c.changed
		c.mu.Unlock()
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

// Lead gives a partition a leader.
func (c *Cluster) Lead(p ident.Partition, leader ident.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders[p] = leader
	c.publishLocked()
}

// Fail has the calls of a broker fail; nil: they do no more.
func (c *Cluster) Fail(broker ident.NodeID, with func(call string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[broker] = with
}

// Deafen has the coordinator answer with an error; nil: it does no more.
func (c *Cluster) Deafen(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = err
}

// Calls counts the calls of a kind so far.
func (c *Cluster) Calls(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[kind]
}

// Touched are the signs of life that came since the last look.
func (c *Cluster) Touched() []cluster.SignOfLife {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.touched
	c.touched = nil
	return out
}

// Touch takes signs of life in.
func (c *Cluster) Touch(_ context.Context, signs []cluster.SignOfLife) (lost cluster.Lost, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf != nil {
		return lost, c.deaf
	}
	c.touched = append(c.touched, signs...)
	for i, s := range signs {
		if !c.livesLocked(s.MemberLife) {
			lost.Lives = append(lost.Lives, i)
		}
	}
	return lost, nil
}

func (c *Cluster) livesLocked(life cluster.MemberLife) bool {
	g := c.groups[life.Group]
	if g == nil {
		return false
	}
	m, ok := g.Member(life.Member)
	return ok && m.Epoch == life.Epoch
}

// Lapse ends the session of a member.
func (c *Cluster) Lapse(topic, group, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if t := c.snap.ByID[g.Topic]; t != nil && t.Name == topic && g.Name == group {
			c.removeLocked(g, member)
		}
	}
	c.publishLocked()
}

// Propose makes a change.
func (c *Cluster) Propose(_ context.Context, change cluster.Change) (cluster.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf != nil {
		return cluster.Answer{}, c.deaf
	}
	c.snapshotLocked()
	a := cluster.Answer{Index: c.index + 1}
	g, err := c.makeLocked(change, &a)
	if err != nil {
		return cluster.Answer{}, err
	}
	c.publishLocked()
	if g != nil {
		a.Group = c.snap.Groups[g.Topic].Get(g.Name)
	}
	return a, nil
}

func (c *Cluster) makeLocked(change cluster.Change, a *cluster.Answer) (*kept, error) {
	find := func(id ident.GroupID) (*kept, error) {
		if g := c.groups[id]; g != nil {
			return g, nil
		}
		return nil, fault.New(fault.GroupNotFound, "there is no such group")
	}
	switch {
	case change.GroupRegister != nil:
		return c.registerLocked(change.GroupRegister, a)
	case change.GroupAlter != nil:
		g, err := find(change.GroupAlter.Group)
		if err == nil {
			apply(&g.Settings, &change.GroupAlter.Patch)
		}
		return g, err
	case change.GroupDelete != nil:
		delete(c.groups, change.GroupDelete.Group)
		return nil, nil
	case change.GroupReset != nil:
		r := change.GroupReset
		g, err := find(r.Group)
		if err == nil && len(g.Members) > 0 && !r.Force {
			return nil, fault.New(fault.GroupHasMembers, "group %q has %d members; stop them, or set force", g.Name, len(g.Members))
		}
		if err == nil {
			g.Reset++
			for i := range g.Members { // a reset ends the lives of all
				g.Members[i].Epoch = ident.MemberEpoch(a.Index)
			}
			g.begin(r.Starts)
		}
		return g, err
	case change.MemberJoin != nil:
		g, err := find(change.MemberJoin.Group)
		if err == nil {
			a.Member = ident.MemberEpoch(a.Index)
			c.joinLocked(g, change.MemberJoin, a.Member)
		}
		return g, err
	case change.MemberLeave != nil:
		l := change.MemberLeave
		if !c.livesLocked(l.MemberLife) {
			return nil, fault.New(fault.Fenced, "that life of %q is over", l.Member)
		}
		c.removeLocked(c.groups[l.Group], l.Member)
		return nil, nil
	case change.Release != nil:
		for _, of := range change.Release.Of {
			g := c.groups[of.Group]
			if g == nil {
				continue
			}
			if o := g.Owner(of.Partition); o != nil && o.Epoch == of.Epoch && o.Notice == of.Notice && o.Next != "" {
				c.handLocked(g, o)
			}
		}
		return nil, nil
	}
	return nil, fault.New(fault.Internal, "a change of kind %s", change.Kind())
}

func (c *Cluster) registerLocked(r *cluster.GroupRegister, a *cluster.Answer) (*kept, error) {
	for _, g := range c.groups {
		if g.Topic != r.Topic || g.Name != r.Name {
			continue
		}
		now := g.Settings
		if apply(&now, &r.Patch); now != g.Settings {
			return nil, fault.New(fault.GroupExists, "group %q has other settings", r.Name).With("differs", []string{"lease"})
		}
		return g, nil
	}
	if err := ident.CheckGroupName(r.Name); err != nil {
		return nil, fault.New(fault.Invalid, "%w", err).With("field", "group")
	}
	t := c.snap.ByID[r.Topic]
	g := &kept{parts: map[ident.Index]*part{}, Group: cluster.Group{ID: r.ID, Topic: r.Topic, Name: r.Name, Created: time.Now(), Settings: cluster.GroupSettings{
		Mode: cluster.Exclusive, Lease: cluster.DefaultLease, Session: cluster.DefaultSession, MaxDeliveries: cluster.DefaultMaxDeliveries,
		Backoff: cluster.DefaultBackoff, DeadLetter: t.Name + "." + r.Name + ".dlq", MaxInFlight: cluster.DefaultMaxInFlight,
	}}}
	apply(&g.Settings, &r.Patch)
	for i := range t.Partitions {
		g.parts[t.Partitions[i].Index] = &part{}
		if g.Settings.Mode == cluster.Exclusive {
			g.Owners = append(g.Owners, cluster.Owner{Partition: t.Partitions[i].Index, Released: true})
		}
	}
	g.begin(r.Starts)
	c.groups[g.ID] = g
	a.Created = true
	return g, nil
}

func (g *kept) begin(at []cluster.Position) {
	for _, p := range at {
		*g.parts[p.Partition] = part{start: p.Offset, floor: p.Offset, records: map[ident.Offset]*fate{}}
	}
}

func apply(s *cluster.GroupSettings, p *cluster.GroupPatch) {
	s.Mode = *cmp.Or(p.Mode, &s.Mode)
	s.Lease = *cmp.Or(p.Lease, &s.Lease)
	s.Session = *cmp.Or(p.Session, &s.Session)
	s.MaxDeliveries = *cmp.Or(p.MaxDeliveries, &s.MaxDeliveries)
	s.Backoff = *cmp.Or(p.Backoff, &s.Backoff)
	s.DeadLetter = *cmp.Or(p.DeadLetter, &s.DeadLetter)
	s.MaxInFlight = *cmp.Or(p.MaxInFlight, &s.MaxInFlight)
}

func (c *Cluster) joinLocked(g *kept, j *cluster.MemberJoin, epoch ident.MemberEpoch) {
	if m, ok := g.Member(j.Member); ok {
		m.Epoch, m.Node = epoch, j.Node
	} else {
		g.Members = append(g.Members, cluster.Member{ID: j.Member, Epoch: epoch, Node: j.Node, Since: time.Now()})
		slices.SortFunc(g.Members, func(a, b cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
	}
	c.assignLocked(g)
}

func (c *Cluster) removeLocked(g *kept, member string) {
	g.Members = slices.DeleteFunc(g.Members, func(m cluster.Member) bool { return m.ID == member })
	for i := range g.Owners {
		if o := &g.Owners[i]; o.Member == member {
			o.Member, o.Next, o.Notice, o.Epoch = "", "", 0, ident.Assignment(c.index+1)
		} else if o.Next == member {
			o.Next, o.Notice = "", 0
		}
	}
	for _, p := range g.parts {
		for _, f := range p.records {
			if f.state == rpc.InFlight && f.member == member {
				f.until = time.Now()
			}
		}
	}
	c.assignLocked(g)
}

// assignLocked spreads the partitions: whoever has more than a part of them gives up.
func (c *Cluster) assignLocked(g *kept) {
	if len(g.Members) == 0 || len(g.Owners) == 0 {
		return
	}
	most := (len(g.Owners) + len(g.Members) - 1) / len(g.Members)
	count := map[string]int{}
	var over []*cluster.Owner
	for i := range g.Owners {
		switch o := &g.Owners[i]; {
		case o.Member != "" && o.Next == "" && count[o.Member] < most:
			count[o.Member]++
		case o.Next != "":
			count[o.Next]++
		default:
			over = append(over, o)
		}
	}
	for _, o := range over {
		to := slices.MinFunc(g.Members, func(a, b cluster.Member) int { return cmp.Compare(count[a.ID], count[b.ID]) }).ID
		count[to]++
		if o.Member == "" {
			o.Member, o.Epoch = to, ident.Assignment(c.index+1)
		} else if o.Next, o.Notice = to, c.index+1; !g.leased(o.Partition) {
			c.handLocked(g, o)
		}
	}
}

func (c *Cluster) handLocked(g *kept, o *cluster.Owner) {
	o.Member, o.Next, o.Notice, o.Epoch, o.Released = o.Next, "", 0, ident.Assignment(c.index+1), true
	for _, f := range g.parts[o.Partition].records {
		if f.state == rpc.InFlight {
			f.until = time.Now()
		}
	}
}

// leased says whether something of a partition is in somebody's hands.
func (g *kept) leased(i ident.Index) bool {
	for _, f := range g.parts[i].records {
		if f.state == rpc.InFlight && time.Now().Before(f.until) {
			return true
		}
	}
	return false
}
