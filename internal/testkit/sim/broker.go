package sim

import (
	"slices"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replica"
	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// broker is a broker's process: what broker/host and internal/registration do around
// replicas, in steps.
type broker struct {
	w     *World
	p     *process
	id    ident.NodeID
	index int
	disk  *disk
	feed  *feed

	// Of the process as it runs.
	folder      *folder       // the logs as it has them open
	replicas    []*held       // by partition
	topic       ident.TopicID // that they are of
	clearing    []bool        // by partition: the log there was is going, and not gone for good yet
	snapshot    *cluster.Snapshot
	acted       bool // on a snapshot as new as its registration
	self        cluster.Life
	next        cluster.Life // registered, and not acted on yet
	reached     uint64       // the index of that registration
	leases      cluster.Leases
	proposals   []bool
	proposing   bool
	ups         []*upstream   // to leaders, by broker
	downs       []*downstream // of followers, by broker
	registering bool
	attempt     int     // of registrations: what belongs to a former one is over
	disclaimed  []bool  // logs that the coordinator knows to be damaged, as of this life
	units       []*unit // by group and partition
	gathering   bool    // a commit is being made, or is under way
	handing     bool    // it asks for another leader in its place
	clamping    bool    // it looks for partitions to clamp, or tells of some
	turn        int

	garbles bool   // what it sends to followers comes with flipped bits now and then
	dropped []bool // by partition: with the power it lost what its page cache held, and the coordinator has yet to hear
	lost    bool   // its folder lacks what it acknowledged, and it has not been activated since
	// lostIn is the last life that was registered before.
	lostIn  ident.BrokerEpoch
	touched bool
}

// held is a replica and what it was last told.
type held struct {
	replica  *replica.Replica
	log      *log
	modified uint64
	leader   ident.NodeID
	view     replication.View
	seen     seen
}

func nodeID(i int) ident.NodeID { return ident.NodeID{0: 0xb0, 15: byte(i + 1)} }

// brokerOf finds a broker by its id.
func (w *World) brokerOf(n ident.NodeID) *broker {
	if n == (ident.NodeID{}) {
		return nil
	}
	return w.brokers[n[15]-1]
}

func (b *broker) name() string { return b.p.name }

// start begins the life of the process: it recovers its folder and registers.
func (b *broker) start() {
	w := b.w
	b.folder, b.snapshot, b.acted = nil, &cluster.Snapshot{}, false
	b.self, b.next, b.leases = cluster.Life{}, cluster.Life{}, cluster.Leases{}
	b.replicas, b.topic, b.clearing = make([]*held, w.set.Partitions), ident.TopicID{}, make([]bool, w.set.Partitions)
	b.proposals, b.proposing = make([]bool, w.set.Partitions), false
	b.disclaimed, b.registering = make([]bool, w.set.Partitions), false
	b.ups, b.downs = make([]*upstream, len(w.brokers)), make([]*downstream, len(w.brokers))
	b.units, b.gathering = make([]*unit, len(w.teams)*w.set.Partitions), false
	b.clamping, b.handing = false, false
	b.feed.start()
	if b.disk.old == nil {
		b.disk.old = b.disk.image.clone()
	}
	w.in(b.p, w.between(20*time.Millisecond, 200*time.Millisecond), func() {
		b.folder = b.disk.recover()
		b.register()
		b.tick()
		b.retain()
	})
}

// stop is the end of the process, as others notice it.
func (b *broker) stop(quiet bool) {
	for _, u := range b.ups {
		if u != nil && u.stream != nil {
			u.stream.dies(quiet, b.p)
		}
	}
	for _, d := range b.downs {
		if d != nil {
			d.stream.dies(quiet, b.p)
		}
	}
	for _, u := range b.units {
		if u != nil {
			u.over, u.m = true, nil // nobody is told
		}
	}
	b.replicas = make([]*held, b.w.set.Partitions)
	b.ups, b.downs = nil, nil
	b.folder = nil
}

// now is what the broker's clock says.
func (b *broker) now() time.Time { return b.w.clockOf(b.p) }

// apply makes the replicas what a snapshot says, as broker/host does.
func (b *broker) apply(s *cluster.Snapshot) {
	b.snapshot = s
	if b.next.Epoch != 0 && s.Index >= b.reached {
		b.begins()
	}
	if !b.acted || s.Index < b.reached {
		return // a restarted broker acts on nothing older than its registration
	}
	t := s.Topics[topicName]
	if t == nil {
		b.becomes(ident.TopicID{})
		b.want()
		return
	}
	b.becomes(t.ID)
	for i := range t.Partitions {
		part := &t.Partitions[i]
		if h := b.replicas[i]; slices.Contains(part.Replicas, b.id) && (h == nil || h.modified != t.Modified) {
			b.take(t, part)
		} else if h != nil && !slices.Contains(part.Replicas, b.id) {
			b.drops(i)
		}
	}
	b.want()
	b.regroups(s)
	b.clamps()
}

func (b *broker) take(t *cluster.Topic, part *cluster.Partition) {
	i := int(part.Index)
	h := b.replicas[i]
	view := replication.View{
		Epoch: part.LeaderEpoch, Version: part.Version, Leader: part.Leader, Replicas: part.Replicas, ISR: part.ISR,
		MinInsync: t.Settings.MinInsync, Unclean: part.Unclean,
	}
	if h != nil && h.log.damage != nil && b.disclaimed[i] && part.Leader != b.id && !counted(part, b.id) {
		b.replaces(i)
		h = nil
		b.disclaimed[i] = false
	}
	if h == nil {
		b.sweeps(i, t.ID)
		if b.clearing[i] {
			return
		}
		h = b.open(t, part)
		b.replicas[i] = h
	}
	if h.log.cutting {
		b.w.reached.hit("orders that came during a cut")
	}
	h.modified, h.leader, h.view = t.Modified, part.Leader, view
	h.replica.Order(replica.Orders{View: view, Range: part.Range, Settings: t.Settings, Floor: replica.Floor{At: part.Purged, Unclamped: part.Unclamped}})
}

// open opens a partition's log and rebuilds what its machine remembers.
func (b *broker) open(t *cluster.Topic, part *cluster.Partition) *held {
	i := int(part.Index)
	if b.folder.logs[i] == nil {
		b.folder.logs[i] = newStored(t.ID)
		b.disk.queue(&op{part: i, do: func(f *folder) { f.logs[i] = newStored(t.ID) }})
	}
	l := &log{w: b.w, b: b, d: b.disk, part: i, life: b.p.life, s: b.folder.logs[i]}
	l.durable = l.EndPosition()
	if l.s.bad >= 0 && (b.w.chance(0.5) || b.folder.knows(i)) {
		l.found() // as the log is opened, where a former life found it at the latest; else by a read or by the scrub
	}
	rebuild := func(rules partition.Rules) (*partition.Machine, error) { return rebuilt(l, rules) }
	machine, err := rebuild(partition.Rules{Range: part.Range, MaxMessageBytes: t.Settings.MaxMessageBytes, IdempotencyWindow: t.Settings.IdempotencyWindow})
	if err != nil {
		b.w.fail("recovery", "%s: partition %d: %v", b.name(), i, err)
	}
	r := replica.New(replica.Config{
		Partition: t.Ref(part.Index), Topic: topicName, Self: b.id, Log: l, Machine: machine, Rebuild: rebuild, Outlet: outlet{b, b.p.life},
		Lease: b.leads, Alive: b.alive, Now: b.now, Lag: b.w.set.Lag, Logger: b.w.logger(b.name()),
	})
	l.snapshotter = r.Snapshot
	h := &held{replica: r, log: l}
	b.w.opened(b, i, h)
	return h
}

// rebuilt makes the machine that a log says, as broker/host does.
func rebuilt(l *log, rules partition.Rules) (*partition.Machine, error) {
	at, state := l.recovered()
	machine, err := partition.Restore(state, at)
	if err != nil {
		return nil, err
	}
	for i := range l.s.kept {
		k := &l.s.kept[i]
		if k.after.Offset > at || k.at.Offset >= at {
			if i == l.s.bad {
				l.found() // it takes nothing more, so what the machine lacks is never asked
				break
			}
			if err := machine.Fold(k.batch, rules); err != nil {
				return nil, err
			}
		}
	}
	return machine, nil
}

// drops lets go of a partition that has moved to other brokers.
func (b *broker) drops(i int) {
	b.replicas[i].replica.Stop(fault.New(fault.LeaderUnavailable, "moved"))
	b.setAside(i)
	b.w.reached.hit("replica moved away")
}

// replaces sets a damaged log aside and begins it anew: what it held is fetched again.
func (b *broker) replaces(i int) {
	b.w.note(b.name(), "partition %d begins anew after damage", i)
	b.w.reached.hit("damaged log replaced")
	b.replicas[i].replica.Stop(fault.New(fault.LeaderUnavailable, "damaged"))
	b.setAside(i)
}

func (b *broker) setAside(i int) {
	b.replicas[i].log.gone = true
	b.replicas[i] = nil
	b.clears(i)
}

// clears takes a log out of the folder. None comes in its place before that is durable, as
// with broker/storage: else a kill would bring it back, after others heard that it is gone.
func (b *broker) clears(i int) {
	b.folder.logs[i], b.folder.harmed[i], b.clearing[i] = nil, 0, true
	b.w.forgets(b, i, nil)
	for _, o := range b.disk.pending {
		if o.part == i {
			o.cut = true
		}
	}
	b.disk.queue(&op{part: -1, do: func(f *folder) { f.logs[i], f.harmed[i] = nil, 0 }, durable: func(err error) {
		if err == nil {
			b.cleared(i)
		}
	}})
}

// cleared takes a partition whose old log is gone, if it is to be here.
func (b *broker) cleared(i int) {
	b.clearing[i] = false
	t := b.snapshot.Topics[topicName]
	if t == nil || t.ID != b.topic || b.replicas[i] != nil || !slices.Contains(t.Partitions[i].Replicas, b.id) {
		return
	}
	b.take(t, &t.Partitions[i])
	b.want()
}

// tick lets time pass for the replicas.
func (b *broker) tick() {
	for _, h := range b.replicas {
		if h != nil {
			h.replica.Tick()
		}
	}
	for _, u := range b.units {
		if u != nil {
			u.tick()
		}
	}
	b.mend()
	b.w.in(b.p, replica.TickEvery, b.tick)
}

// retain asks logs to drop what is over, and looks for damage.
func (b *broker) retain() {
	life := b.p.life
	for _, h := range b.replicas {
		if h != nil && h.log.s.bad >= 0 && b.w.chance(0.5) {
			h.log.found() // the scrub came by
		}
		if h != nil {
			if err := h.replica.Retain(b.now()); err != nil {
				b.w.fail("retention", "%s: %v", b.name(), err)
			}
		}
		if !b.p.up || b.p.life != life {
			return // it died meanwhile
		}
	}
	b.w.in(b.p, time.Second, b.retain)
}

// mend has damaged logs replaced. The coordinator hears of them in the registration of
// a new life: what a leader has under way to bring the former one into an ISR is over
// with that, so once the feed has reached it nobody counts on what this broker has, or
// will before it has caught up. Should the process end before that, the next one knows
// from its folder what it has to say.
func (b *broker) mend() {
	for i, h := range b.replicas {
		if h != nil && h.log.damage != nil && b.folder.harmed[i] == 0 {
			life := b.p.life
			b.folder.harmed[i] = life
			b.disk.queue(&op{part: -1, do: func(f *folder) { f.harmed[i] = life }})
		}
	}
	t := b.snapshot.Topics[topicName]
	if t == nil || t.ID != b.topic || b.self.Epoch == 0 || b.next.Epoch != 0 || b.registering {
		return
	}
	for i, h := range b.replicas {
		switch {
		case h == nil || h.log.damage == nil:
		case b.alone(&t.Partitions[i]):
			b.handsOn(t, i)
		case b.disclaimed[i] && !counted(&t.Partitions[i], b.id):
			b.take(t, &t.Partitions[i])
		default:
			b.register()
			return
		}
	}
}

// handsOn gives up the lead of a damaged partition that nobody else is in sync with, where
// the topic allows unclean elections, to one who has got all that can be read of it.
func (b *broker) handsOn(t *cluster.Topic, i int) {
	if b.handing || !t.Settings.Unclean {
		return
	}
	version, who, ok := b.replicas[i].replica.Successor()
	if !ok {
		return
	}
	b.handing = true
	of := cluster.ElectOf{Partition: t.Ref(ident.Index(i)), Version: version, Leader: who.Node, Unclean: who.Epoch}
	b.w.council.propose(b.p, cluster.Change{Elect: &cluster.Elect{Of: []cluster.ElectOf{of}}}, func(cluster.Answer, error) { b.handing = false })
}

// counted says whether a broker may be elected.
func counted(p *cluster.Partition, n ident.NodeID) bool {
	return slices.Contains(p.ISR, n) || slices.Contains(p.ELR, n)
}

// alone says whether nobody else holds all that is committed.
func (b *broker) alone(p *cluster.Partition) bool {
	other := func(n ident.NodeID) bool { return n != b.id }
	return !slices.ContainsFunc(p.ISR, other) && !slices.ContainsFunc(p.ELR, other)
}

// leads says whether this broker is sure to lead what its snapshot says it leads.
func (b *broker) leads() bool {
	sure := b.now().Before(b.leases.Leads(b.snapshot.Index))
	if !sure && b.now().Before(b.leases.Until()) {
		b.w.reached.hit("lease that is newer than the feed")
	}
	return sure
}

// alive says whether a life is the one that counts, as far as this broker knows.
func (b *broker) alive(l cluster.Life) bool {
	n := b.snapshot.Nodes[l.Node]
	return n != nil && n.BrokerEpoch == l.Epoch && (n.State == cluster.Alive || n.State == cluster.DrainingState)
}

func (b *broker) lifeOf(n ident.NodeID) (cluster.Life, bool) {
	node := b.snapshot.Nodes[n]
	if node == nil {
		return cluster.Life{}, false
	}
	return cluster.Life{Node: n, Epoch: node.BrokerEpoch}, true
}

func (b *broker) replica(p ident.Partition) *replica.Replica {
	if p.Topic != b.topic || int(p.Index) >= len(b.replicas) || b.replicas[p.Index] == nil {
		return nil
	}
	return b.replicas[p.Index].replica
}

// followed are the replicas that follow a leader.
func (b *broker) followed(leader ident.NodeID) []*replica.Replica {
	var all []*replica.Replica
	for _, h := range b.replicas {
		if h != nil && h.leader == leader {
			all = append(all, h.replica)
		}
	}
	return all
}

// outlet is where replicas of one life leave word.
type outlet struct {
	b    *broker
	life int
}

func (o outlet) alive() bool { return o.b.p.up && o.b.p.life == o.life }

// Push is of replica.Outlet.
func (o outlet) Push(follower ident.NodeID, p ident.Partition) {
	if !o.alive() {
		return
	}
	if d := o.b.downs[o.b.w.brokerOf(follower).index]; d != nil {
		d.mark(int(p.Index))
	}
}

// Tell is of replica.Outlet.
func (o outlet) Tell(follower ident.NodeID, p ident.Partition) {
	if !o.alive() {
		return
	}
	if d := o.b.downs[o.b.w.brokerOf(follower).index]; d != nil {
		d.note(int(p.Index))
		o.b.w.in(o.b.p, 5*time.Millisecond, d.rouse)
	}
}

// Say is of replica.Outlet.
func (o outlet) Say(leader ident.NodeID, p ident.Partition) {
	if !o.alive() {
		return
	}
	if b := o.b.w.brokerOf(leader); b != nil {
		if u := o.b.ups[b.index]; u != nil {
			u.mark(int(p.Index))
		}
	}
}

// Propose is of replica.Outlet.
func (o outlet) Propose(p ident.Partition) {
	if o.alive() {
		o.b.wantsProposed(int(p.Index))
	}
}

// Heard is of replica.Outlet.
func (o outlet) Heard(leader ident.NodeID) time.Time {
	if o.alive() {
		if b := o.b.w.brokerOf(leader); b != nil {
			if u := o.b.ups[b.index]; u != nil {
				return o.b.w.clockAt(o.b.p, u.heard)
			}
		}
	}
	return time.Time{}
}
