package sim

import (
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// unit is one group on one partition at the broker that leads it: what broker/groups does
// around the machine of broker/lease, in steps.
type unit struct {
	b     *broker
	life  int // of the process
	team  *team
	part  int
	epoch ident.Epoch
	since time.Duration // it leads
	group *cluster.Group
	m     *lease.Machine // nil: the progress has yet to be read
	begun bool           // there was a machine before
	moved bool           // the group was reset since
	over  bool           // somebody else leads

	waits    map[lease.Token]func(lease.Answer)
	freed    cluster.ReleaseOf // the latest that was to be released
	appended map[int64]bool    // letters on their way, by sequence
}

// regroups makes the units what a snapshot says.
func (b *broker) regroups(s *cluster.Snapshot) {
	t := s.Topics[topicName]
	for _, team := range b.w.teams {
		g := s.Groups[t.ID].Get(team.name)
		for i := range t.Partitions {
			p := &t.Partitions[i]
			at := team.index*len(t.Partitions) + i
			u := b.units[at]
			leads := g != nil && p.Leader == b.id && b.replicas[i] != nil
			if u != nil && (!leads || u.epoch != p.LeaderEpoch) {
				u.end()
				u = nil
			}
			if u == nil && leads {
				u = &unit{
					b: b, life: b.p.life, team: team, part: i, epoch: p.LeaderEpoch, since: b.w.now, group: g,
					waits: map[lease.Token]func(lease.Answer){}, appended: map[int64]bool{},
				}
				u.load()
			}
			b.units[at] = u
			if u != nil {
				u.see(g)
			}
		}
	}
}

// load reads the progress, as new as the command that made this leader.
func (u *unit) load() {
	if u.over {
		return
	}
	b, w := u.b, u.b.w
	again := func() { w.in(b.p, w.between(10*time.Millisecond, 60*time.Millisecond), u.load) }
	h := b.replicas[u.part]
	if h == nil {
		again()
		return
	}
	if _, err := h.replica.Bounds(); err != nil || b.snapshot.Topics[topicName].Partitions[u.part].Unclamped != 0 {
		again()
		return
	}
	w.council.progress(b.p, b.snapshot.Index, u.part, u.team.id, func(p cluster.GroupProgress, ok bool) {
		if u.over {
			return
		}
		h := b.replicas[u.part]
		if !ok || h == nil {
			again()
			return
		}
		bounds, err := h.replica.Bounds()
		if err != nil || bounds.Epoch != u.epoch {
			again()
			return
		}
		// A former leader leases no longer than its lease of a broker lasts, and what
		// was leased by the machine before was leased until now.
		alone := u.since + w.set.Lease
		if u.begun {
			alone = max(alone, w.now)
		}
		m := lease.Begin(b.now(), lease.Config{
			Partition: ident.Index(u.part), Leader: u.epoch, Alone: w.clockAt(b.p, alone), First: u.moved,
		}, u.group, p, bounds.Start, bounds.HW)
		if m.Over() {
			again()
			return
		}
		if u.begun || u.epoch > 1 {
			w.reached.hit("group taken over")
		}
		w.note(b.name(), "runs %s on partition %d, alone from %s on", u.team.name, u.part, alone)
		u.m, u.begun, u.moved = m, true, false
		u.after()
	})
}

func (u *unit) see(g *cluster.Group) {
	u.moved = u.moved || u.begun && g.Reset > u.group.Reset
	u.group = g
	if u.m != nil {
		u.m.See(u.b.now(), g)
		u.after()
	}
}

func (u *unit) end() {
	u.over = true
	if u.m != nil {
		u.m.End()
		u.answer()
		u.m = nil
	}
}

// with runs something on the machine, where this broker may lease, and carries out what
// comes of it.
func (u *unit) with(f func(m *lease.Machine)) error {
	h := u.b.replicas[u.part]
	if u.m == nil || u.over || h == nil || !u.b.leads() {
		return fault.New(fault.LeaderUnavailable, "not now")
	}
	bounds, err := h.replica.Bounds()
	if err != nil {
		return err
	}
	u.m.Moved(u.b.now(), bounds.Start, bounds.HW)
	f(u.m)
	u.after()
	return nil
}

// tick lets time pass.
func (u *unit) tick() {
	_ = u.with(func(m *lease.Machine) { m.Tick(u.b.now()) })
}

func (u *unit) after() {
	u.answer()
	if u.m.Over() {
		u.b.w.reached.hit("group read again by its leader")
		u.m = nil
		u.load()
		return
	}
	if u.m.Dirty() {
		u.b.gathers()
	}
	if of, free := u.m.Free(u.b.now()); free && of != u.freed {
		u.freed = of
		u.b.w.note(u.b.name(), "releases partition %d of %s, assignment %d, notice %d", u.part, u.team.name, of.Epoch, of.Notice)
		u.b.w.council.propose(u.b.p, cluster.Change{Release: &cluster.Release{Of: []cluster.ReleaseOf{of}}}, func(_ cluster.Answer, err error) {
			if err != nil && u.freed == of {
				u.freed = cluster.ReleaseOf{}
			}
		})
	}
	for _, l := range u.m.Letters() {
		u.append(l)
	}
}

func (u *unit) answer() {
	for _, a := range u.m.Answers() {
		if done := u.waits[a.Token]; done != nil {
			delete(u.waits, a.Token)
			done(a)
		}
	}
}

// append brings a letter to the dead-letter topic, where another broker may lead: it
// arrives or not, and the answer may be lost.
func (u *unit) append(l cluster.Intent) {
	if u.appended[l.Sequence] {
		return
	}
	u.appended[l.Sequence] = true
	w := u.b.w
	of := u.m
	w.in(u.b.p, w.between(time.Millisecond, 30*time.Millisecond), func() {
		if !w.chance(0.1) {
			u.team.buries(u.part, l)
		}
		w.in(u.b.p, w.between(time.Millisecond, 30*time.Millisecond), func() {
			delete(u.appended, l.Sequence)
			if w.chance(0.1) || !u.team.buried(u.part, l) {
				w.reached.hit("letter sent again")
			} else if u.m == of {
				_ = u.with(func(m *lease.Machine) { m.Published(l.Offset) })
			}
		})
	})
}

// gathers makes one commit of what all units have to say, one at a time.
func (b *broker) gathers() {
	if b.gathering {
		return
	}
	b.gathering = true
	b.w.in(b.p, b.w.set.Gather, b.gather)
}

func (b *broker) gather() {
	type given struct {
		u    *unit
		m    *lease.Machine
		from int
	}
	var all []given
	commit := cluster.Commit{Leader: b.self}
	for i := range b.units {
		u := b.units[(i+b.turn)%len(b.units)]
		if u == nil || u.m == nil || !b.leads() {
			continue
		}
		if of := u.m.Delta(b.w.set.CommitBytes); len(of) > 0 {
			all = append(all, given{u, u.m, len(commit.Of)})
			commit.Of = append(commit.Of, of...)
		}
	}
	b.turn++
	if len(commit.Of) == 0 {
		b.gathering = false
		return
	}
	b.w.council.propose(b.p, cluster.Change{Commit: &commit}, func(answer cluster.Answer, err error) {
		for _, g := range all {
			if g.u.over || g.u.m != g.m {
				continue
			}
			if err != nil || answer.Refusal != nil {
				b.w.reached.hit("commit of unknown outcome")
				g.m.Unknown(b.now())
			} else {
				g.m.Committed(b.now(), answer.Taken[g.from:])
			}
			g.u.after()
		}
		b.gathering = false
		b.gathers()
	})
}

// takes leases records to a member, as Take of the broker's rpc does.
func (u *unit) takes(by cluster.MemberLife, n int, of rpc.Hearing) (leases []rpc.Lease, err error) {
	failed := u.with(func(m *lease.Machine) {
		now := u.b.now()
		m.Hear(now, by, of)
		if from, want := m.Wants(n); want > 0 {
			u.reads(from, want)
		}
		leases, err = m.Take(now, by, n, of)
	})
	if failed != nil {
		return nil, failed
	}
	return leases, err
}

// reads reads records into the machine.
func (u *unit) reads(from ident.Offset, n int) {
	records := make([]lease.Record, n)
	for i := range records {
		o := from + ident.Offset(i)
		records[i] = lease.Record{Offset: o, Hash: keyOf(o), Keyed: keyOf(o) > 0, Stamp: 1}
	}
	u.m.Offer(from, from+ident.Offset(n), records)
}

// settles takes what a member says, and answers once that is decided.
func (u *unit) settles(by cluster.MemberLife, of rpc.SettleOf, heard rpc.Hearing, done func(stale []rpc.Stale, err error)) {
	failed := u.with(func(m *lease.Machine) {
		for from, n := m.Unread(of.Through); n > 0; from, n = m.Unread(of.Through) {
			u.reads(from, n)
		}
		m.Hear(u.b.now(), by, heard)
		got, err := m.Settle(u.b.now(), by, of)
		switch {
		case err != nil || got.Token == 0:
			done(got.Stale, err)
		default:
			u.waits[got.Token] = func(a lease.Answer) {
				if a.Unknown {
					done(nil, fault.New(fault.UnknownOutcome, "not known"))
					return
				}
				done(append(got.Stale, a.Stale...), nil)
			}
		}
	})
	if failed != nil {
		done(nil, failed)
	}
}

// keyOf is the key of a record: some have none.
func keyOf(o ident.Offset) uint32 { return uint32(o*7) % 6 }
