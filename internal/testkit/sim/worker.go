package sim

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// worker is a member of a group, with its gateway. Some fall silent with leases in hand,
// and wake when they are members no more.
type worker struct {
	w      *World
	team   *team
	name   string
	epoch  ident.MemberEpoch // 0: it is no member, as far as it knows
	lives  int               // counts its joins and its ends: what it had before is let go
	gave   [8]int            // counts how often it let go of each partition
	given  [8]bool           // it let go, and was not told since that the partition is its own
	heard  time.Duration     // by the coordinator
	busy   bool              // a call is under way
	silent time.Duration     // until then
	hands  []job

	gateway uint64 // the one that it calls now
	takes   uint64 // counts those of all its gateways
	lines   map[place]*heard
}

// place is a gateway of a worker, and a partition.
type place struct {
	gateway uint64
	part    int
}

// heard is what a gateway has had of a partition's leaders.
type heard struct{ made, heard uint64 }

// job is a lease, as its member knows it.
type job struct {
	part  int
	o     ident.Offset
	reset uint64
	past  bool // a leader of the past leased it
}

func (k *worker) start() { k.w.in(k.w.edge, k.w.between(0, 300*time.Millisecond), k.step) }

func (k *worker) by() cluster.MemberLife {
	return cluster.MemberLife{Group: k.team.id, Member: k.name, Epoch: k.epoch}
}

// life counts what it has with a partition: of a former one it knows nothing any more.
func (k *worker) life(part int) int { return k.lives + k.gave[part] }

// begins is another life: it has nothing in hand.
func (k *worker) begins(e ident.MemberEpoch) {
	k.epoch, k.hands, k.given = e, nil, [8]bool{}
	k.lives++
}

func (k *worker) step() {
	w := k.w
	pause := 2 * w.set.Think
	if w.healing {
		pause = 10 * time.Millisecond
	}
	w.in(w.edge, w.between(2*time.Millisecond, pause), k.step)
	if w.now < k.silent && !w.healing {
		return
	}
	k.heard = w.now
	if k.busy {
		return
	}
	if k.epoch == 0 {
		k.join()
		return
	}
	if !w.healing {
		switch w.rng.IntN(200) {
		case 0:
			k.silent = w.now + w.between(0, 3*w.set.Session)
			w.reached.hit("member falls silent")
			return
		case 1:
			k.leave()
			return
		case 2:
			k.join() // though it is a member
			return
		}
	}
	k.gives()
	if n := len(k.hands); n > 0 && w.chance(0.6) {
		k.settle(k.hands[w.rng.IntN(n)])
		return
	}
	if part := w.rng.IntN(w.set.Partitions); k.wants(part) {
		k.take(part)
	}
}

func (k *worker) join() {
	k.busy = true
	k.begins(0)
	c := cluster.Change{MemberJoin: &cluster.MemberJoin{Group: k.team.id, Member: k.name, Node: nodeID(0)}}
	k.w.council.propose(k.w.edge, c, func(a cluster.Answer, err error) {
		k.busy = false
		if err == nil && a.Refusal == nil {
			k.begins(a.Member)
		}
	})
}

func (k *worker) leave() {
	k.busy = true
	by := k.by()
	k.begins(0) // it lets go first
	k.w.council.propose(k.w.edge, cluster.Change{MemberLeave: &cluster.MemberLeave{MemberLife: by}}, func(cluster.Answer, error) { k.busy = false })
}

// gives lets go of a partition that is to move, as a heartbeat that leaves it out does.
func (k *worker) gives() {
	g := k.w.routes().Groups[k.w.topic].Get(k.team.name)
	if g == nil {
		return
	}
	for _, o := range g.Owners {
		if o.Member == k.name && o.Next != "" && k.w.chance(0.05) {
			k.w.reached.hit("member lets go of a partition")
			k.w.note(k.name, "lets go of partition %d", o.Partition)
			part := int(o.Partition)
			k.hands = slices.DeleteFunc(k.hands, func(j job) bool { return j.part == part })
			k.gave[part]++
			k.given[part] = true
			of := cluster.ReleaseOf{Group: k.team.id, Partition: o.Partition, Epoch: o.Epoch, Notice: o.Notice}
			k.w.council.propose(k.w.edge, cluster.Change{Release: &cluster.Release{Of: []cluster.ReleaseOf{of}}}, func(cluster.Answer, error) {})
		}
	}
}

// wants says that a member may take records of a partition: not of one that it let go of,
// before it hears that it is its own again. A leader that is behind would give it some.
func (k *worker) wants(part int) bool {
	if !k.given[part] {
		return true
	}
	g := k.w.routes().Groups[k.w.topic].Get(k.team.name)
	o := g.Owner(ident.Index(part))
	k.given[part] = o.Member != k.name || o.Next != ""
	return !k.given[part]
}

// at finds who leads a partition, as the gateway knows.
func (k *worker) at(part int) *broker {
	t := k.w.routes().Topics[topicName]
	if t == nil {
		return nil
	}
	return k.w.brokerOf(t.Partitions[part].Leader)
}

func (b *broker) unit(t *team, part int) *unit {
	if at := t.index*b.w.set.Partitions + part; at < len(b.units) {
		return b.units[at]
	}
	return nil
}

func (k *worker) take(part int) {
	b, w := k.at(part), k.w
	if b == nil {
		return
	}
	by, life, n := k.by(), k.life(part), 1+w.rng.IntN(w.set.MaxInFlight)
	k.busy = true
	if w.chance(0.1) {
		k.moves()
	}
	line := k.line(part)
	k.takes++
	line.made = k.takes
	of := rpc.Hearing{Taker: k.gateway, Call: line.made, Heard: line.heard}
	var jobs []job
	gone := false
	lost := func() {
		gone = true
		k.took(life, part, nil)
		for _, j := range jobs {
			w.reached.hit("records leased in an answer that was lost")
			k.team.speaks(k, part, j.o) // it has not come, and will not
		}
		if k.life(part) == life && w.chance(0.2) {
			k.join() // it called through a gateway that is gone, and knows nothing of its answer
		}
	}
	w.call(w.edge, b.p, w.set.Timeout, func(reply func(func())) {
		u := b.unit(k.team, part)
		if u == nil {
			reply(func() { k.took(life, part, nil) })
			return
		}
		leases, err := u.takes(by, n, of)
		for _, l := range leases {
			// Until the answer is there, it may be: this life has it from now on.
			past := false
			if k.life(part) == life && !gone {
				past = k.team.leased(u, k, l.Offset, l.Delivery, w.now+l.Left)
			}
			jobs = append(jobs, job{part, l.Offset, u.group.Reset, past})
		}
		if !w.healing && w.chance(0.1) { // the connection breaks
			reply(lost)
			return
		}
		reply(func() {
			if len(jobs) > 0 {
				line.heard = of.Call
			}
			k.took(life, part, jobs)
			k.fenced(life, part, err)
		})
	}, func(bool) { lost() })
}

func (k *worker) line(part int) *heard {
	at := place{k.gateway, part}
	if k.lines[at] == nil {
		k.lines[at] = &heard{}
	}
	return k.lines[at]
}

// hearing is what the worker's gateway says to the leader of a partition, in another call than
// a take.
func (k *worker) hearing(part int) rpc.Hearing {
	l := k.line(part)
	return rpc.Hearing{Taker: k.gateway, Call: l.made + 1, Heard: l.heard}
}

// moves has the worker call through another gateway. The one before tells leaders what came of
// its takes a little later, if it is there still.
func (k *worker) moves() {
	w, by := k.w, k.by()
	for part := range w.set.Partitions {
		of := k.hearing(part)
		if w.chance(0.2) {
			continue
		}
		w.in(w.edge, w.between(0, 200*time.Millisecond), func() {
			if b := k.at(part); b != nil {
				w.call(w.edge, b.p, w.set.Timeout, func(reply func(func())) {
					if u := b.unit(k.team, part); u != nil {
						_, _ = u.takes(by, 0, of)
					}
					reply(func() {})
				}, func(bool) {})
			}
		})
	}
	k.gateway = 3 - k.gateway
	w.reached.hit("member calls through another gateway")
}

func (k *worker) took(life, part int, jobs []job) {
	k.busy = false
	if k.life(part) != life {
		return
	}
	for _, j := range jobs {
		k.hands = append(slices.DeleteFunc(k.hands, func(o job) bool { return o.part == j.part && o.o == j.o }), j)
		k.team.arrives(k, j)
	}
}

// expired says that retention or a purge took a record, whoever had it.
func (b *broker) expired(part int, o ident.Offset) bool {
	h, t := b.replicas[part], b.snapshot.Topics[topicName]
	if h == nil {
		return false
	}
	purged := t != nil && t.ID == b.topic && t.Partitions[part].Unclamped == 0 && o < t.Partitions[part].Purged
	return purged || o < h.log.Start()
}

// fenced ends a life that the broker says is over.
func (k *worker) fenced(life, part int, err error) {
	if k.life(part) != life || !fault.Is(err, fault.Fenced) {
		return
	}
	// Whoever does not own a partition is told the same of that partition alone.
	if g := k.w.routes().Groups[k.w.topic].Get(k.team.name); g != nil {
		if m, ok := g.Member(k.name); ok && m.Epoch == k.epoch {
			return
		}
	}
	k.w.reached.hit("member finds its life over")
	k.begins(0)
}

// settle says what became of a record: done mostly, and some are poison.
func (k *worker) settle(j job) {
	b, w := k.at(j.part), k.w
	if b == nil {
		return
	}
	of := rpc.SettleOf{Partition: w.ref(j.part), Through: -1}
	acks := false
	if w.healing {
		for _, o := range k.hands {
			if o.part == j.part && o != j {
				of.Ack = append(of.Ack, o.o)
			}
		}
	}
	var held []job // that it has done with, up to one
	switch n := w.rng.IntN(20); {
	case !w.healing && j.o%17 != 3 && n < 4:
		of.Through, acks = j.o, true
		for _, o := range k.hands {
			if o.part == j.part && o.o < j.o {
				held = append(held, o)
			}
		}
	case w.healing || j.o%17 != 3 && n < 14:
		of.Ack, acks = append(of.Ack, j.o), true
	case n < 17:
		of.Nack = []rpc.Nack{{Offset: j.o, Delay: -1}}
	case n == 17:
		of.Reject = []rpc.Reject{{Offset: j.o, Reason: "bad"}}
	case n == 18:
		of.Extend = []ident.Offset{j.o}
	default:
		k.drops(j) // it forgets, and the lease runs out
		return
	}
	by, life, heard := k.by(), k.life(j.part), k.hearing(j.part)
	k.busy = true
	w.call(w.edge, b.p, w.set.Timeout, func(reply func(func())) {
		u := b.unit(k.team, j.part)
		if u == nil {
			reply(func() { k.settled(life, j, acks, nil, fault.New(fault.LeaderUnavailable, "not here")) })
			return
		}
		if k.life(j.part) == life {
			held = slices.DeleteFunc(held, func(h job) bool { return b.expired(j.part, h.o) || !k.team.has(k, j.part, h.o) })
			k.team.passes(k, j.part, of.Through)
			for _, o := range of.Ack {
				k.team.speaks(k, j.part, o)
			}
			if len(of.Extend) == 0 {
				k.team.speaks(k, j.part, j.o)
			}
		}
		reset := u.group.Reset
		u.settles(by, of, heard, func(stale []rpc.Stale, err error) {
			named := func(o ident.Offset) bool {
				return slices.ContainsFunc(stale, func(s rpc.Stale) bool { return s.Offset == o })
			}
			if acks && err == nil && !named(j.o) {
				for _, h := range append(held, j) {
					if !named(h.o) {
						k.team.told(h, reset)
					} else {
						w.reached.hit("record before another one named as not acknowledged with it")
					}
				}
			}
			if len(of.Extend) > 0 && err == nil && len(stale) == 0 && k.life(j.part) == life {
				k.team.extends(k, j.part, j.o)
			}
			reply(func() { k.settled(life, j, acks, stale, err) })
		})
	}, func(bool) { k.settled(life, j, acks, nil, fault.New(fault.UnknownOutcome, "no answer")) })
}

func (k *worker) settled(life int, j job, acks bool, stale []rpc.Stale, err error) {
	k.busy = false
	if k.life(j.part) != life {
		return
	}
	switch {
	case err == nil || len(stale) > 0:
		if k.w.healing && acks {
			k.hands = slices.DeleteFunc(k.hands, func(o job) bool { return o.part == j.part })
		}
		k.drops(j)
		if acks && len(stale) > 0 {
			k.w.reached.hit("acknowledgement refused as stale")
		}
	case fault.Is(err, fault.Fenced):
		k.fenced(life, j.part, err)
		k.drops(j)
	}
}

func (k *worker) drops(j job) {
	k.hands = slices.DeleteFunc(k.hands, func(o job) bool { return o == j })
}

// sessions ends those of members that are not heard.
func (w *World) sessions() {
	w.after(100*time.Millisecond, w.sessions)
	m := w.council.leader
	if m == nil || !w.council.quorum(m) {
		return
	}
	for _, t := range w.teams {
		var lives []cluster.MemberLife
		for _, c := range t.group().Members {
			k := t.workers[slices.IndexFunc(t.workers, func(k *worker) bool { return k.name == c.ID })]
			if w.now-k.heard > w.set.Session {
				lives = append(lives, cluster.MemberLife{Group: t.id, Member: c.ID, Epoch: c.Epoch})
			}
		}
		if len(lives) > 0 {
			w.reached.hit("session over")
			w.council.decree(m.p, w.council.term, cluster.Change{MemberLapse: &cluster.MemberLapse{Lives: lives}}, func(cluster.Answer, error) {})
		}
	}
}

// resets moves a group to other offsets now and then, whoever is at work.
func (w *World) resets() {
	if w.healing {
		return
	}
	w.after(w.between(time.Second, 6*time.Second), w.resets)
	t := w.teams[w.rng.IntN(len(w.teams))]
	r := &cluster.GroupReset{Group: t.id, Force: true}
	for i := range w.truth {
		r.Starts = append(r.Starts, cluster.Position{
			Partition: ident.Index(i), Offset: ident.Offset(w.rng.Int64N(int64(w.truth[i].hw) + 1)), Epoch: w.council.partition(i).LeaderEpoch,
		})
	}
	w.council.propose(w.edge, cluster.Change{GroupReset: r}, func(cluster.Answer, error) {})
}

// resetsLate moves the groups to where the logs end now, as somebody has seen them, and asks
// for that once others may lead that lack what is there.
func (w *World) resetsLate() {
	for _, t := range w.teams {
		r := &cluster.GroupReset{Group: t.id, Force: true}
		for i := range w.truth {
			r.Starts = append(r.Starts, cluster.Position{Partition: ident.Index(i), Offset: w.truth[i].hw, Epoch: w.council.partition(i).LeaderEpoch})
		}
		w.later(w.set.Lease+300*time.Millisecond, func() {
			w.council.propose(w.edge, cluster.Change{GroupReset: r}, func(cluster.Answer, error) {})
		})
	}
}
