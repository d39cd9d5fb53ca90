package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// team is a consumer group, and what the world knows of it and no broker does.
type team struct {
	w       *World
	index   int
	name    string
	id      ident.GroupID
	mode    cluster.GroupMode
	workers []*worker
	ledgers []*ledger // of each partition
}

// ledger is the truth of a group on a partition, since its latest reset.
type ledger struct {
	reset     uint64
	floor     ident.Offset
	start     ident.Offset            // of the partition, as far up as a leader that leased had it
	done      map[ident.Offset]string // by whose acknowledgement
	dead      map[ident.Offset]bool
	settled   map[ident.Offset]bool // the member was told that it is done
	leased    map[ident.Offset]bool // at least once
	delivered map[ident.Offset]bool // it has come to a member, of a leader of that time
	came      map[ident.Offset]bool // it has come to a member
	grips     map[ident.Offset][]grip
	letters   map[int64]ident.Offset // in the dead-letter topic, by sequence; they outlive a reset
}

// grip is a lease that somebody has in hand.
type grip struct {
	worker *worker
	part   int
	life   int // of the worker, with this partition
	until  time.Duration
	by     *lease.Machine // which gave it
	epoch  ident.MemberEpoch
}

func (l *ledger) begin(reset uint64) {
	l.reset, l.start = reset, 0
	l.done, l.dead, l.settled = map[ident.Offset]string{}, map[ident.Offset]bool{}, map[ident.Offset]bool{}
	l.leased, l.came = map[ident.Offset]bool{}, map[ident.Offset]bool{}
	l.delivered, l.grips = map[ident.Offset]bool{}, map[ident.Offset][]grip{}
}

func newTeam(w *World, i int) *team {
	t := &team{w: w, index: i, name: fmt.Sprintf("g%d", i+1), id: ident.GroupID{0: 0x96, 15: byte(i + 1)}, mode: cluster.Exclusive}
	if i%2 == 1 {
		t.mode = cluster.Shared
	}
	for n := range w.set.Members {
		t.workers = append(t.workers, &worker{w: w, team: t, name: fmt.Sprintf("%s-m%d", t.name, n+1), gateway: 1, lines: map[place]*heard{}})
	}
	for range w.set.Partitions {
		l := &ledger{letters: map[int64]ident.Offset{}}
		l.begin(0)
		t.ledgers = append(t.ledgers, l)
	}
	return t
}

// register is the command that makes the group.
func (t *team) register() cluster.Change {
	s := &t.w.set
	r := &cluster.GroupRegister{ID: t.id, Topic: topicID(1), Name: t.name, Patch: cluster.GroupPatch{
		Mode: &t.mode, Lease: &s.GroupLease, Session: &s.Session, MaxDeliveries: &s.MaxDeliveries, Backoff: &s.Backoff, MaxInFlight: &s.MaxInFlight,
	}}
	for i := range s.Partitions {
		r.Starts = append(r.Starts, cluster.Position{Partition: ident.Index(i)})
	}
	return cluster.Change{GroupRegister: r}
}

// group is the newest state of it.
func (t *team) group() *cluster.Group { return t.w.council.now().Groups[t.w.topic].Get(t.name) }

func (t *team) progress(part int) *cluster.GroupProgress {
	p := t.w.council.machine.Progress(t.w.ref(part), []ident.GroupID{t.id})
	if len(p) == 0 {
		return nil
	}
	return &p[0]
}

// doneWith says that a progress knows of a record that it is done; above the floor a clamp
// lets that stand.
func doneWith(p *cluster.GroupProgress, o ident.Offset) bool {
	return o < p.Floor || within(p.Done, o)
}

func within(all []cluster.Span, o ident.Offset) bool {
	return slices.ContainsFunc(all, func(s cluster.Span) bool { return o >= s.From && o < s.To })
}

func (t *team) intent(part int, o ident.Offset) (cluster.Intent, bool) {
	p := t.progress(part)
	i := slices.IndexFunc(p.Intents, func(i cluster.Intent) bool { return i.Offset == o })
	if i < 0 {
		return cluster.Intent{}, false
	}
	return p.Intents[i], true
}

// buries is a letter that arrives in the dead-letter topic. A repeat is one by its sequence.
func (t *team) buries(part int, l cluster.Intent) {
	led := t.ledgers[part]
	if o, ok := led.letters[l.Sequence]; ok {
		if o != l.Offset {
			t.w.fail("one-letter", "%s, partition %d: letter %d is of offset %d, and again of %d", t.name, part, l.Sequence, o, l.Offset)
		}
		return
	}
	if i, ok := t.intent(part, l.Offset); !ok || i.Sequence != l.Sequence {
		t.w.fail("intent-first", "%s, partition %d: letter %d of offset %d has no intent", t.name, part, l.Sequence, l.Offset)
	}
	led.letters[l.Sequence] = l.Offset
	t.w.reached.hit("letter in the dead-letter topic")
}

func (t *team) buried(part int, l cluster.Intent) bool {
	o, ok := t.ledgers[part].letters[l.Sequence]
	return ok && o == l.Offset
}

// leased holds a lease to what was promised. True: it is one of a leader of the past.
func (t *team) leased(u *unit, by *worker, o ident.Offset, delivery int, until time.Duration) (past bool) {
	w, l := t.w, t.ledgers[u.part]
	if u.group.Reset != l.reset {
		return false // it counts no more, and the leader cannot tell yet
	}
	grips := func() {
		l.grips[o] = append(slices.DeleteFunc(l.grips[o], func(g grip) bool { return g.worker == by || !g.holds(w.now) }), grip{by, u.part, by.life(u.part), until, u.m, by.epoch})
	}
	what := func(format string, args ...any) string {
		return fmt.Sprintf("%s, partition %d, offset %d to %s: ", t.name, u.part, o, by.name) + fmt.Sprintf(format, args...)
	}
	maps.DeleteFunc(l.grips, func(_ ident.Offset, all []grip) bool {
		return !slices.ContainsFunc(all, func(g grip) bool { return g.holds(w.now) })
	})
	if t.mode == cluster.Exclusive {
		for _, at := range slices.Sorted(maps.Keys(l.grips)) {
			for _, g := range l.grips[at] {
				if g.worker != by && g.holds(w.now) {
					w.fail("one-owner", "%s", what("%s has %d until %s", g.worker.name, at, g.until))
				}
			}
		}
	}
	if u.epoch != w.council.partition(u.part).LeaderEpoch {
		w.reached.hit("lease of a leader of the past")
		for _, b := range w.brokers {
			if now := b.unit(t, u.part); now != nil && !now.over && now.epoch > u.epoch && w.now >= now.since+w.set.Lease {
				w.fail("former-leader-stops", "%s", what("%s leads since %s, and %s leases", b.name(), now.since, u.b.name()))
			}
		}
		w.note(by.name, "has offset %d of partition %d of %s, a leader of the past, until %s", o, u.part, u.b.name(), until)
		grips()
		return true
	}
	if l.settled[o] {
		w.fail("settled-stays", "%s", what("it was acknowledged by %s", l.done[o]))
	}
	for _, g := range l.grips[o] {
		if m, there := u.group.Member(g.worker.name); g.holds(w.now) && g.by == u.m && there && m.Epoch == g.epoch {
			w.fail("leases-last", "%s", what("%s has it until %s", g.worker.name, g.until))
		}
	}
	if delivery > w.set.MaxDeliveries {
		w.fail("poison-ends", "%s", what("delivery %d", delivery))
	}
	w.note(u.b.name(), "leases offset %d of partition %d to %s for the %d. time, until %s", o, u.part, by.name, delivery, until)
	l.leased[o] = true
	if bounds, err := u.b.replicas[u.part].replica.Bounds(); err == nil {
		l.start = max(l.start, bounds.Start)
	}
	grips()
	return false
}

// arrives is a lease that comes to its member.
func (t *team) arrives(by *worker, j job) {
	l := t.ledgers[j.part]
	if l.came[j.o] = l.came[j.o] || j.reset == l.reset; j.past || j.reset != l.reset {
		return
	}
	t.w.note(by.name, "has offset %d of partition %d", j.o, j.part)
	if t.mode == cluster.Exclusive {
		t.inOrder(by, j.part, j.o)
	}
	l.delivered[j.o] = true
}

func (g grip) holds(now time.Duration) bool { return g.life == g.worker.life(g.part) && now < g.until }

// inOrder holds that no record comes to a member before an earlier one of its key has come to
// one.
func (t *team) inOrder(by *worker, part int, o ident.Offset) {
	l := t.ledgers[part]
	if l.delivered[o] || keyOf(o) == 0 {
		return
	}
	p := t.progress(part)
	for e := max(p.Start, p.Floor, l.start); e < o; e++ { // what lies below was over, though only a leader knew that has died
		if keyOf(e) != keyOf(o) || l.delivered[e] || within(p.Dead, e) || doneWith(p, e) || t.over(part, e) {
			continue
		}
		if _, dying := t.intent(part, e); !dying { // an intent outlives a reset
			t.w.fail("key-order", "%s, partition %d: offset %d comes to %s before offset %d of the same key", t.name, part, o, by.name, e)
		}
	}
}

// over says that retention took a record, or that a leader has given it up and nobody else
// knows yet.
func (t *team) over(part int, o ident.Offset) bool {
	return slices.ContainsFunc(t.w.brokers, func(b *broker) bool {
		if b.expired(part, o) {
			return true
		}
		u := b.unit(t, part)
		return u != nil && u.m != nil && u.m.Status(b.now(), o).State == rpc.DeadState
	})
}

// speaks is a worker who has done with a record.
func (t *team) speaks(by *worker, part int, o ident.Offset) {
	for i := range t.ledgers[part].grips[o] {
		if g := &t.ledgers[part].grips[o][i]; g.worker == by {
			g.until = 0
		}
	}
}

// passes is a worker who has done with all up to a record: with what it was leased in an
// answer that it never had as well.
func (t *team) passes(by *worker, part int, through ident.Offset) {
	for o := range t.ledgers[part].grips {
		if o <= through {
			t.speaks(by, part, o)
		}
	}
}

// has says that a worker has a record in hand, whoever has it as well.
func (t *team) has(by *worker, part int, o ident.Offset) bool {
	return slices.ContainsFunc(t.ledgers[part].grips[o], func(g grip) bool { return g.worker == by && g.holds(t.w.now) })
}

// extends is a worker who has a record for longer, as its leader says: it had come to it, be it
// by an earlier lease, even of before a reset.
func (t *team) extends(by *worker, part int, o ident.Offset) {
	t.ledgers[part].delivered[o] = true
	for i := range t.ledgers[part].grips[o] {
		if g := &t.ledgers[part].grips[o][i]; g.worker == by {
			g.until = max(g.until, t.w.now+t.w.set.GroupLease)
		}
	}
}

// told is an acknowledgement that is answered.
func (t *team) told(j job, reset uint64) {
	part, o := j.part, j.o
	l := t.ledgers[part]
	if reset != l.reset {
		return
	}
	p := t.progress(part)
	if within(p.Dead, o) {
		return // a former lease, and it has ended since
	}
	if j.reset < reset && o >= p.Start && !l.leased[o] {
		t.w.fail("resets-end-leases", "%s, partition %d: offset %d was leased before reset %d, and is acknowledged after it", t.name, part, o, reset)
	}
	if !doneWith(p, o) {
		t.w.fail("answer-after-commit", "%s, partition %d: offset %d is acknowledged, and the coordinator does not know", t.name, part, o)
	}
	l.settled[o] = true
}

// groupsDecided holds what the coordinator decides of groups.
func (w *World) groupsDecided(before, after *cluster.Snapshot, change *cluster.Change, answer *cluster.Answer) {
	if len(w.teams) == 0 || answer.Refusal != nil {
		return
	}
	if c := change.Commit; c != nil {
		for i := range c.Of {
			if answer.Taken[i] {
				w.committed(before, &c.Of[i])
			}
		}
	}
	for _, t := range w.teams {
		was, now := before.Groups[w.topic].Get(t.name), after.Groups[w.topic].Get(t.name)
		if was == now && change.Commit == nil || now == nil || was == nil {
			continue
		}
		if now.Reset > was.Reset {
			w.reached.hit("group reset")
			if change.Clamp != nil {
				w.reached.hit("group clamped")
			}
			for _, c := range answer.Clamped {
				w.reached.hit("floor of lost records set back")
				w.note("council", "%s goes back from %d to %d on partition %d", c.Group, c.From, c.To, c.Partition.Index)
			}
			w.note("council", "resets %s", t.name)
			for _, l := range t.ledgers {
				l.begin(now.Reset)
			}
		}
		for part, l := range t.ledgers {
			if o := now.Owner(ident.Index(part)); o != nil && *o != *was.Owner(ident.Index(part)) {
				w.note("council", "%s: %s, partition %d: %+v", change.Kind(), t.name, part, *o)
			}
			p := t.progress(part)
			if p.Floor < l.floor && now.Reset == was.Reset {
				w.fail("floor-stays", "%s, partition %d: the floor goes from %d back to %d", t.name, part, l.floor, p.Floor)
			}
			if p.Floor > w.truth[part].hw && after.Topics[topicName].Partitions[part].Unclamped == 0 {
				w.fail("floor-is-committed", "%s, partition %d: the floor is %d, and the high watermark %d", t.name, part, p.Floor, w.truth[part].hw)
			}
			l.floor = p.Floor
		}
	}
}

// committed holds a part of a commit that was taken.
func (w *World) committed(before *cluster.Snapshot, of *cluster.CommitOf) {
	t := w.teams[of.Group[15]-1]
	part := int(of.Partition)
	l, g := t.ledgers[part], before.Groups[w.topic].Get(t.name)
	who := of.Member + fmt.Sprintf("@%d", of.Epoch)
	if t.mode == cluster.Exclusive {
		who = fmt.Sprintf("assignment %d", of.Assignment)
	}
	if e := before.Topics[topicName].Partitions[part].LeaderEpoch; of.Leader != e || of.Reset != g.Reset {
		w.fail("late-commits-fail", "%s, partition %d: a commit of epoch %d and reset %d is taken, in epoch %d and reset %d", t.name, part, of.Leader, of.Reset, e, g.Reset)
	}
	for _, s := range of.Done {
		if !t.counts(g, of) {
			break // what it says was known
		}
		for o := s.From; o < s.To; o++ {
			if first := l.done[o]; first != "" && first != who {
				w.fail("one-acknowledgement", "%s, partition %d: offset %d is acknowledged by %s, and by %s", t.name, part, o, first, who)
			}
			if (of.Assignment > 0 || of.Member != "") && !l.came[o] {
				w.fail("done-has-come", "%s, partition %d: offset %d is acknowledged by %s, and has come to nobody", t.name, part, o, who)
			}
			if l.dead[o] {
				w.fail("one-end", "%s, partition %d: offset %d is dead, and acknowledged by %s", t.name, part, o, who)
			}
			l.done[o] = who
		}
	}
	for _, o := range of.Published {
		if !slices.Contains(slices.Collect(maps.Values(l.letters)), o) {
			w.fail("dead-with-letter", "%s, partition %d: offset %d is dead, and in no letter", t.name, part, o)
		}
		if l.done[o] == "" {
			l.dead[o] = true
		}
	}
}

// counts says that a part of a commit is of a life, or an ownership, that is not over.
func (t *team) counts(g *cluster.Group, of *cluster.CommitOf) bool {
	if t.mode == cluster.Exclusive {
		return of.Assignment == 0 || g.Owner(of.Partition).Epoch == of.Assignment
	}
	m, there := g.Member(of.Member)
	return of.Member == "" || there && m.Epoch == of.Epoch
}

// finished counts what groups have done with, since their latest resets.
func (w *World) finished() (n ident.Offset) {
	for _, t := range w.teams {
		for part := range t.ledgers {
			n += t.progress(part).Floor
		}
	}
	return n
}

// unfinished says what groups have still to do.
func (w *World) unfinished() string {
	for _, t := range w.teams {
		for part := range t.ledgers {
			p := t.progress(part)
			if p.Floor < w.truth[part].hw || len(p.Intents) > 0 {
				return fmt.Sprintf("%s is at %d of %d of partition %d, done %v, intents %v, owner %+v, members %+v", t.name, p.Floor, w.truth[part].hw, part, p.Done, p.Intents, t.group().Owner(ident.Index(part)), t.group().Members)
			}
		}
	}
	return ""
}
