package sim

import (
	"bytes"
	"encoding/binary"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// council is the coordinators: the production state machine behind a log that agrees
// with itself. Whoever asks may get no answer, or ask twice, and an entry that a leader
// left behind may still come to count under the next one.
type council struct {
	w        *World
	members  []*member
	leader   *member // nil: none
	life     int     // of the leader's process, as it came to lead
	term     int
	machine  *state.Machine
	twin     *state.Machine // applies the same, now and then restored from a snapshot
	index    uint64
	history  []*cluster.Snapshot // by index
	made     map[*byte]uint64    // by the first byte of a command: where it was applied first
	pending  []*entry            // of the leader, not committed
	left     []*entry            // by the former one: the next one commits them
	requests uint64
	loses    float64 // answers
	leaderAt time.Duration
	doubt    time.Duration // since when the leader has no majority; 0: it has
	banned   time.Duration // no election before
	watch    *keeper
	topic    *cluster.Topic // as it was last
}

// member is one coordinator.
type member struct {
	c       *council
	p       *process
	applied uint64
	heard   time.Duration // of a leader
}

type entry struct {
	command []byte
	change  *cluster.Change
	reply   func(func())
	done    func(cluster.Answer)
}

func (c *council) init(w *World) {
	c.w = w
	c.machine, c.twin = state.New(), state.New()
	c.made = map[*byte]uint64{}
	c.history = []*cluster.Snapshot{c.machine.Snapshot()}
	c.loses = w.set.CoordinatorLoses
	c.watch = &keeper{w: w}
	w.after(0, c.tick)
}

// propose brings a change to the leading coordinator, again and again under one
// request id, until it has an answer or the limit has passed: nobody knows then.
func (c *council) propose(from *process, change cluster.Change, done func(cluster.Answer, error)) {
	c.proposes(from, 0, change, done)
}

// decree is propose for what a leading coordinator has decided: in its own term or never.
func (c *council) decree(from *process, term int, change cluster.Change, done func(cluster.Answer, error)) {
	c.proposes(from, term, change, done)
}

func (c *council) proposes(from *process, term int, change cluster.Change, done func(cluster.Answer, error)) {
	command := c.encode(from, change)
	limit := c.w.now + c.w.set.ProposeLimit
	over := false
	var try func()
	again := func() { c.w.in(from, c.w.between(5*time.Millisecond, 60*time.Millisecond), try) }
	try = func() {
		if c.w.now >= limit {
			if !over {
				over = true
				done(cluster.Answer{}, fault.New(fault.CoordinatorUnavailable, "no answer"))
			}
			return
		}
		m := c.leader
		if m == nil {
			again()
			return
		}
		c.w.call(from, m.p, min(c.w.set.TryLimit, limit-c.w.now), func(reply func(func())) {
			if c.leader != m || term != 0 && term != c.term {
				reply(again)
				return
			}
			c.append(&entry{command: command, change: &change, reply: reply, done: func(a cluster.Answer) { over = true; done(a, nil) }})
		}, func(bool) { again() })
	}
	try()
}

// encode makes a command of a change, under a request id of its own.
func (c *council) encode(from *process, change cluster.Change) []byte {
	c.requests++
	var id state.RequestID
	binary.BigEndian.PutUint64(id[8:], c.requests)
	command, err := state.Encode(&state.Command{Request: id, Time: c.w.clockOf(from).UnixMilli(), Change: change})
	if err != nil {
		c.w.fail("command", "%v", err)
	}
	return command
}

// append is what the leader does with a change.
func (c *council) append(e *entry) {
	c.pending = append(c.pending, e)
	term := c.term
	c.w.in(c.leader.p, c.w.between(500*time.Microsecond, 4*time.Millisecond), func() {
		if c.term == term && c.leader != nil && c.quorum(c.leader) {
			c.commit()
		}
	})
}

// commit applies everything that the leader has appended.
func (c *council) commit() {
	pending := c.pending
	c.pending = nil
	for _, e := range pending {
		c.apply(e)
	}
	c.leader.reaches(c.index)
	for _, m := range c.members {
		if m != c.leader {
			index := c.index
			c.w.net.send(c.leader.p.machine, m.p, nil, func() { m.reaches(index) })
		}
	}
}

func (c *council) apply(e *entry) {
	before := c.history[c.index]
	c.index++
	answer, err := c.machine.Apply(c.index, e.command)
	if err != nil {
		c.w.fail("state-machine", "%v", err)
		return
	}
	if _, err := c.twin.Apply(c.index, e.command); err != nil {
		c.w.fail("state-machine", "the twin: %v", err)
		return
	}
	if c.index%64 == 0 {
		c.compare()
	}
	c.history = append(c.history, c.machine.Snapshot())
	if first, again := c.made[&e.command[0]]; again {
		c.w.reached.hit("change that came twice")
		if answer.Index != first && e.change.Commit == nil { // which is united with what is known
			c.w.fail("made-once", "a change was made at index %d, and again at %d: %s", first, c.index, e.change.Kind())
		}
	} else {
		c.made[&e.command[0]] = c.index
	}
	c.w.decided(before, c.history[c.index], e.change, &answer)
	if e.reply != nil && !c.w.chance(c.loses) {
		e.reply(func() { e.done(answer) })
	}
}

// compare holds that two machines which applied the same hold the same, and that a
// snapshot says everything.
func (c *council) compare() {
	a, b := capture(c.machine), capture(c.twin)
	if !bytes.Equal(a, b) {
		c.w.fail("determinism", "two state machines differ at index %d:\n%s\n%s", c.index, a, b)
		return
	}
	m, err := state.Restore(b)
	if err != nil {
		c.w.fail("determinism", "a snapshot cannot be restored: %v", err)
		return
	}
	c.twin = m
}

func capture(m *state.Machine) []byte {
	var b bytes.Buffer
	if _, err := m.Capture().WriteTo(&b); err != nil {
		return nil
	}
	return b.Bytes()
}

// now is the newest state.
func (c *council) now() *cluster.Snapshot { return c.history[c.index] }

// partition is the newest state of a partition, of a topic that was deleted the last one;
// nil: there is none yet.
func (c *council) partition(i int) *cluster.Partition {
	if t := c.now().Topics[topicName]; t != nil {
		c.topic = t
	}
	if c.topic == nil {
		return nil
	}
	return &c.topic.Partitions[i]
}

// found makes the cluster and its topic, before the world begins.
func (c *council) found() {
	set := &c.w.set
	apply := func(cmd state.Command) cluster.Answer {
		c.requests++
		binary.BigEndian.PutUint64(cmd.Request[8:], c.requests)
		cmd.Time = c.w.clock().UnixMilli()
		b, err := state.Encode(&cmd)
		if err != nil {
			c.w.fail("command", "%v", err)
		}
		var a cluster.Answer
		c.apply(&entry{command: b, change: &cmd.Change, reply: func(do func()) { do() }, done: func(got cluster.Answer) { a = got }})
		return a
	}
	loses := c.loses
	c.loses = 0
	apply(state.Command{Found: &state.Found{Cluster: ident.ClusterID{1}}})
	for _, b := range c.w.brokers {
		n := cluster.Node{ID: b.id, Name: b.name(), Zone: "z", Roles: []string{"broker"}, Version: "sim", Storage: b.disk.storage, Boot: "boot 0"}
		epoch := apply(state.Command{Change: cluster.Change{Register: &cluster.Register{Node: n}}}).Epoch
		apply(state.Command{Change: cluster.Change{Activate: &cluster.Activate{Node: b.id, Epoch: epoch}}})
		b.disk.image.noted = epoch
		b.disk.caches()
	}
	a := apply(state.Command{Change: set.creation(topicID(1))})
	for _, t := range c.w.teams {
		if a.Refusal == nil {
			a = apply(state.Command{Change: t.register()})
		}
	}
	if a.Refusal != nil {
		c.w.fail("founding", "%s", a.Refusal.Detail)
	}
	c.loses = loses
	for _, m := range c.members {
		m.applied = c.index
	}
}

// maxMessageBytes of the topic: larger ones are refused, and use their number up.
const maxMessageBytes = 200

// renew grants a lease, at a leader that has proved after it was asked that it leads.
func (c *council) renew(from *process, life cluster.Life, done func(lease cluster.Lease, fenced bool)) {
	m := c.leader
	if m == nil {
		return
	}
	c.w.call(from, m.p, c.w.set.Lease, func(reply func(func())) {
		c.w.in(m.p, c.w.between(100*time.Microsecond, time.Millisecond), func() {
			if c.leader != m || !c.quorum(m) {
				return
			}
			fenced := !c.watch.renewed(life)
			lease := cluster.Lease{For: c.w.set.Lease, Index: c.machine.Shown()}
			if !c.w.chance(c.loses) {
				reply(func() { done(lease, fenced) })
			}
		})
	}, func(bool) {})
}

// progress tells how far a group has come, as of an index or a later one.
func (c *council) progress(from *process, after uint64, part int, id ident.GroupID, done func(cluster.GroupProgress, bool)) {
	m := c.leader
	if m == nil {
		c.w.in(from, 50*time.Millisecond, func() { done(cluster.GroupProgress{}, false) })
		return
	}
	c.w.call(from, m.p, c.w.set.TryLimit, func(reply func(func())) {
		if all := c.machine.Progress(c.w.ref(part), []ident.GroupID{id}); c.leader == m && c.quorum(m) && c.index >= after && len(all) == 1 {
			reply(func() { done(all[0], true) })
		}
	}, func(bool) { done(cluster.GroupProgress{}, false) })
}

// report tells the leading coordinator that a node may be dead.
func (c *council) report(from *process, s cluster.Suspicion, done func()) {
	m := c.leader
	if m == nil {
		c.w.in(from, 100*time.Millisecond, done)
		return
	}
	c.w.call(from, m.p, 2*time.Second, func(reply func(func())) {
		if c.leader == m {
			c.watch.suspected(s)
		}
		reply(done)
	}, func(bool) { done() })
}

// lead says who leads; nil: nobody.
func (c *council) lead(m *member) {
	if c.leader != nil { // what it did not commit may or may not survive
		n := c.w.rng.IntN(len(c.pending) + 1)
		c.left = append(c.left, c.pending[:n]...)
		if n < len(c.pending) {
			c.w.reached.hit("change lost with a leading coordinator")
		}
		c.pending = nil
	}
	c.leader, c.doubt = m, 0
	c.term++
	c.leaderAt = c.w.now
	if m == nil {
		return
	}
	c.life = m.p.life
	c.w.note(m.p.name, "leads the coordinators")
	c.w.reached.hit("coordinator led anew")
	for _, e := range c.left {
		c.w.reached.hit("change that outlived its leading coordinator")
		e.reply = nil
		c.apply(e)
	}
	c.left = nil
	m.reaches(c.index)
	c.watch.led(m)
}

// quorum says whether a member can talk with a majority.
func (c *council) quorum(m *member) bool {
	if !m.p.runs() {
		return false
	}
	n := 0
	for _, o := range c.members {
		if o.p.runs() && (o == m || c.w.net.joined(m.p.machine, o.p.machine)) {
			n++
		}
	}
	return 2*n > len(c.members)
}

// tick is the clock of the consensus: leaders without a majority step down, and after
// an election timeout another one leads.
func (c *council) tick() {
	w := c.w
	w.after(50*time.Millisecond, c.tick)
	switch {
	case c.leader != nil && c.leader.p.life != c.life: // it is up again, and leads no more
		c.unseat()
	case c.leader != nil && c.quorum(c.leader):
		c.doubt = 0
		for _, m := range c.members {
			if m.p.runs() && (m == c.leader || w.net.joined(m.p.machine, c.leader.p.machine)) {
				m.heard = w.now
				if m != c.leader && m.applied < c.index {
					index := c.index
					w.net.send(c.leader.p.machine, m.p, nil, func() { m.reaches(index) })
				}
			}
		}
		if len(c.pending) > 0 {
			c.commit()
		}
	case c.leader != nil && c.doubt == 0:
		c.doubt = w.now
	case c.leader != nil && w.now-c.doubt >= 150*time.Millisecond:
		c.unseat()
	case c.leader == nil && w.now >= c.banned:
		var can []*member
		for _, m := range c.members {
			if c.quorum(m) {
				can = append(can, m)
			}
		}
		if len(can) > 0 {
			c.lead(can[w.rng.IntN(len(can))])
		}
	}
}

// unseat ends a leadership; another begins after an election timeout.
func (c *council) unseat() {
	c.lead(nil)
	c.banned = max(c.banned, c.w.now+c.w.between(150*time.Millisecond, 700*time.Millisecond))
}

// start begins the life of a coordinator's process.
func (m *member) start() {
	m.heard = m.c.w.now
	m.c.w.in(m.p, 50*time.Millisecond, m.sign)
}

// reaches applies everything up to an index.
func (m *member) reaches(index uint64) {
	if index > m.applied {
		m.applied = index
		m.tell()
	}
}

// sign tells those who follow this coordinator that it is there.
func (m *member) sign() {
	m.tell()
	m.c.w.in(m.p, 250*time.Millisecond, m.sign)
}

// tell sends the state to all who follow this coordinator, unless it has lost touch
// with its leader.
func (m *member) tell() {
	w := m.c.w
	if !m.p.runs() || w.now-m.heard > time.Second && m != m.c.leader {
		return
	}
	for _, f := range w.watchers {
		if f.from == m && f.p.up {
			index := m.applied
			w.net.send(m.p.machine, f.p, &f.pipe, func() { f.hears(m, index) })
		}
	}
}
