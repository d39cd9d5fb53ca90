package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Result is how a run ended.
type Result struct {
	Seed    uint64
	Set     Setup
	Faults  []Fault
	Failure *Failure // nil: nothing broke
	Reached Reached
	Steps   uint64
	Records int           // committed
	Virtual time.Duration // how long it was in the world
	Sum     uint64        // of the trace
	Trace   string        // of a failure
}

// Draw gives what a seed stands for.
func Draw(seed uint64) (Setup, []Fault) {
	rng := rand.New(rand.NewPCG(seed, 1))
	set := setup(rng)
	set.Unclean = (seed%8 == 7 || seed%16 == 10) && set.Replicas > 1
	set.Replicated, set.Reborn = seed%16 == 5 || seed%32 == 18, seed%16 == 9
	if seed%4 == 2 {
		set.groups(rand.New(rand.NewPCG(seed, 3)))
	}
	set.Purges = purgesAt(seed)
	set.Apart = set.Apart || set.Unclean && (seed%16 == 7 || seed%32 == 10) // who elects is there when all but one die
	faults := schedule(rng, &set)
	faults = append(faults, extras(rand.New(rand.NewPCG(seed, 4)), &set)...)
	return set, faults
}

// Run plays a seed.
func Run(seed uint64) *Result {
	_, faults := Draw(seed)
	return Play(seed, faults)
}

// Play plays a seed with other faults than its own.
func Play(seed uint64, faults []Fault) *Result {
	set, _ := Draw(seed)
	w := build(seed, set)
	func() {
		defer w.guard()
		w.play(faults)
	}()
	r := &Result{Seed: seed, Set: set, Faults: faults, Failure: w.failure, Reached: w.reached, Steps: w.steps, Virtual: w.now, Sum: w.trace.sum}
	for _, t := range w.truth {
		r.Records += int(t.hw)
	}
	if w.failure != nil {
		r.Trace = w.trace.String()
	}
	return r
}

// build makes a world in which everything runs.
func build(seed uint64, set Setup) *World {
	w := &World{set: set, rng: rand.New(rand.NewPCG(seed, 2)), reached: Reached{}}
	add := func(name string) *process {
		p := &process{name: name, machine: len(w.processes)}
		w.processes = append(w.processes, p)
		return p
	}
	for i := range set.Brokers {
		b := &broker{w: w, p: add(fmt.Sprintf("b%d", i+1)), id: nodeID(i), index: i, dropped: make([]bool, set.Partitions)}
		b.p.broker = b
		b.disk = newDisk(w, b.p, set.Partitions)
		w.brokers = append(w.brokers, b)
	}
	for i := range 3 {
		m := &member{c: &w.council}
		if set.Apart {
			m.p = add(fmt.Sprintf("c%d", i+1))
		} else {
			m.p = w.brokers[i].p
		}
		m.p.member = m
		w.council.members = append(w.council.members, m)
	}
	w.edge = add("edge")
	w.net.init(w, len(w.processes))
	for i := range set.Partitions {
		w.truth = append(w.truth, newTruth(i))
		w.purged = append(w.purged, decidedPurge{})
	}
	for _, b := range w.brokers {
		b.feed = w.follow(b.p, b.apply)
	}
	for i := range set.Groups {
		w.teams = append(w.teams, newTeam(w, i))
	}
	w.routing = w.follow(w.edge, func(*cluster.Snapshot) {})
	w.council.init(w)
	w.council.found()
	for i := range set.Producers {
		p := &producer{w: w, name: fmt.Sprintf("p%d", i+1), id: producerID(i), part: w.rng.IntN(set.Partitions), sequenced: true}
		if i > 0 && w.rng.IntN(3) == 0 {
			p.sequenced = w.rng.IntN(2) == 0
			p.acks = rpc.AcksLeader
			if !p.sequenced && w.rng.IntN(2) == 0 {
				p.acks = rpc.AcksNone
			}
		}
		w.producers = append(w.producers, p)
	}
	for range set.Readers {
		w.readers = append(w.readers, &reader{w: w, part: w.rng.IntN(set.Partitions)})
	}
	return w
}

// routes is what the gateways know.
func (w *World) routes() *cluster.Snapshot { return w.routing.snapshot }

// play lets the world go on under faults, heals it, and waits for everything to end.
func (w *World) play(faults []Fault) {
	for _, p := range w.processes {
		w.start(p)
	}
	w.routing.start()
	for _, p := range w.producers {
		p.start()
	}
	for _, r := range w.readers {
		r.start()
	}
	for _, t := range w.teams {
		for _, k := range t.workers {
			k.start()
		}
	}
	if len(w.teams) > 0 {
		w.after(0, w.sessions)
		w.after(begins, w.resets)
	}
	if w.set.Purges {
		w.after(begins, w.purges)
	}
	for i := range faults {
		f := &faults[i]
		w.after(begins+f.At, func() { w.strike(f) })
	}
	w.run(begins + w.set.Length)
	if w.failure == nil {
		w.settle()
	}
}

// Bounds of how long a healed world may take.
const (
	begins  = time.Second      // before the first fault
	healthy = 2 * time.Second  // producers go on so long after it is healed
	limit   = 90 * time.Second // and groups do not stand still for so long
)

// settle heals the world, or all of it but one broker that it can do without, and
// holds that everything comes to an end.
func (w *World) settle() {
	healed := w.now
	w.healing = true
	w.note("world", "heals")
	for i := range w.net.links {
		for k := range w.net.links[i] {
			w.net.links[i][k].slow = 0
			w.net.heal(i, k)
		}
	}
	for _, f := range w.watchers {
		if f.busy {
			w.in(f.p, 0, f.acts)
		}
	}
	var out *broker
	if w.chance(0.4) {
		out = w.without()
	}
	w.council.loses, w.council.banned = 0, 0
	w.minInsync(w.set.MinInsync)
	for _, p := range w.processes {
		if b := p.broker; b != nil {
			b.disk.full, b.disk.breaks, b.disk.stalled, b.garbles = false, false, 0, false
			if b == out && !p.up {
				continue
			}
		}
		w.resume(p)
		w.revive(p)
	}
	for _, b := range w.brokers {
		w.undrain(b)
	}
	w.run(w.now + healthy)
	for _, p := range w.producers {
		p.done = true
	}
	end, done := w.now+limit, w.finished()
	for w.failure == nil && w.now < end {
		w.run(w.now + 250*time.Millisecond)
		if w.unsettled(out) == "" {
			break
		}
		if n := w.finished(); n > done { // members may have much to do, and little in flight
			end, done = w.now+limit, n
		}
		if t := w.council.now().Topics[topicName]; t != nil && t.Settings.MinInsync != w.set.MinInsync {
			w.minInsync(w.set.MinInsync) // an earlier change came later
		}
	}
	if w.failure != nil {
		return
	}
	if why := w.unsettled(out); why != "" {
		w.fail("progress", "%s, and the world is healed since %s", why, healed)
		return
	}
	w.council.compare()
	if out != nil {
		w.reached.hit("settled without one broker")
	}
}

// without picks a broker that the others can do without, if there is one, and takes it
// from them: dead, deaf, or cut off from the other brokers and from nobody else.
func (w *World) without() *broker {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	cut := w.set.Apart && w.set.MinInsync > 1 && w.chance(0.5)
	if p := w.council.partition(0); cut && p.Leader != (ident.NodeID{}) {
		b = w.brokerOf(p.Leader) // for rule C3
	}
	if !w.dispensable(b) {
		return nil
	}
	switch {
	case cut && b.p.runs():
		w.reached.hit("settled with a leader cut off from its followers")
		for _, o := range w.brokers {
			w.net.hold(b.p.machine, o.p.machine)
			w.net.hold(o.p.machine, b.p.machine)
		}
		w.cutOff = b
		for i := range w.truth {
			w.isTakenOver(i)
		}
	case w.chance(0.5) && b.p.member == nil && !w.leadsAny(b):
		w.reached.hit("settled with a deaf broker")
		for _, o := range w.processes {
			w.net.hold(o.machine, b.p.machine)
		}
	default:
		w.kill(b.p, false)
	}
	return b
}

// isTakenOver holds that somebody goes on in time, once too few are in sync with a leader
// that is cut off from its followers and from nobody else: those who are electable wait for
// one and a half lags, twice as long after each takeover before.
func (w *World) isTakenOver(i int) {
	p := w.council.partition(i)
	from := p.Leader
	if w.cutOff == nil || from != w.cutOff.id || len(p.ISR) >= w.set.MinInsync {
		return
	}
	t := w.truth[i]
	bound, grown := 3*w.set.Lag/2<<t.taken+time.Second, t.grown
	w.after(bound, func() {
		p := w.council.partition(i)
		if w.truth[i] == t && t.grown == grown && (len(p.ISR) < w.set.MinInsync || slices.Contains(p.ISR, from)) {
			w.fail("goes-on", "%s after %s found itself cut off from its followers: %s", bound, w.names(from), w.describe(i))
		}
	})
}

func (w *World) leadsAny(b *broker) bool {
	for i := range w.truth {
		if w.council.partition(i).Leader == b.id {
			return true
		}
	}
	return false
}

// dispensable says whether the others can go on without a broker, whatever becomes of
// it: no other topic is on its way, all of them are well, and somebody who runs can be elected, and still can when the
// coordinator has heard all that the broker has said.
func (w *World) dispensable(b *broker) bool {
	if w.deleting || !w.there() {
		return false // the next topic may be placed on it alone
	}
	for i := range w.truth {
		p := w.council.partition(i)
		if !slices.Contains(p.Replicas, b.id) {
			continue
		}
		well := 0
		for _, n := range p.Replicas {
			o := w.brokerOf(n)
			if o.lost || o.harmed(i) {
				return false
			}
			if node := w.council.now().Nodes[n]; o != b && o.p.runs() && counted(p, n) && node.Serves() && o.self == node.Life() && o.now().Before(o.leases.Until()) {
				well++
			}
		}
		if well == 0 || len(p.Replicas)-1 < w.set.MinInsync {
			return false
		}
		if b.asks(i) || slices.Contains(p.Adding, b.id) { // others may go as soon as it is in sync
			return false
		}
	}
	return true
}

// unsettled says what is still to come, but for a broker that stays away.
func (w *World) unsettled(out *broker) string {
	if !w.there() {
		return "there is no topic"
	}
	for _, p := range w.producers {
		if p.batch != nil {
			return fmt.Sprintf("%s has no answer (try %d, %s): %s", p.name, p.tries, p.last, w.describe(p.part))
		}
	}
	for i, t := range w.truth {
		p := w.council.partition(i)
		var first *broker
		for _, n := range p.Replicas {
			b := w.brokerOf(n)
			if b == out {
				continue
			}
			if !slices.Contains(p.ISR, n) {
				return fmt.Sprintf("%s is not in sync: %s", b.name(), w.describe(i))
			}
			if !b.current() || b.replicas[i] == nil || !same(t, b, first, i) {
				return fmt.Sprintf("%s is not like the others: %s", b.name(), w.describe(i))
			}
			first = b
		}
	}
	for _, r := range w.readers {
		if r.of != w.topic || r.next < w.truth[r.part].hw {
			return fmt.Sprintf("a reader of partition %d is at %d: %s", r.part, r.next, w.describe(r.part))
		}
	}
	return w.unfinished()
}

// same says whether two replicas hold the same bytes, and all of it is committed.
func same(t *truth, b, other *broker, i int) bool {
	s := b.replicas[i].log.s
	if s.end().Offset != t.hw || b.replicas[i].seen.hw != t.hw || b.replicas[i].log.durable != s.end() {
		return false
	}
	if other == nil {
		return true
	}
	o := other.replicas[i].log.s
	if s.end() != o.end() && len(s.kept) > 0 && len(o.kept) > 0 {
		return false
	}
	for k := 1; k <= min(len(s.kept), len(o.kept)); k++ {
		if !bytes.Equal(s.kept[len(s.kept)-k].batch, o.kept[len(o.kept)-k].batch) {
			return false
		}
	}
	return true
}
