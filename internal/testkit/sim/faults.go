package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Fault is one thing that goes wrong, at a moment and for a while. Whom it hits is said
// by a role, and found out when it happens: a fault at the leader of a partition is
// worth more than one at a broker.
type Fault struct {
	At, For time.Duration
	Kind    string
	Who     Who
	Other   Who // the other end of a link
}

// Who picks a broker: the leader of a partition, one of its followers, or any.
type Who struct {
	Role      string // "leader", "follower", "broker", "coordinator"
	Partition int
	N         int
}

func (f Fault) String() string {
	s := fmt.Sprintf("%9s  %s %s", f.At.Round(time.Millisecond), f.Kind, f.Who)
	if f.Other.Role != "" {
		s += " and " + f.Other.String()
	}
	return s + fmt.Sprintf(" for %s", f.For.Round(time.Millisecond))
}

func (o Who) String() string {
	switch o.Role {
	case "leader":
		return fmt.Sprintf("the leader of partition %d", o.Partition)
	case "follower":
		return fmt.Sprintf("follower %d of partition %d", o.N, o.Partition)
	case "coordinator":
		return "the leading coordinator"
	}
	return fmt.Sprintf("broker %d", o.N+1)
}

// kinds of faults, and how often each is drawn.
func kinds() []weighted {
	return []weighted{
		{"kill", 8},
		{"power", 8},
		{"pause", 6},
		{"cut", 6},
		{"cut-one-way", 8},
		{"cut-from-followers", 5},
		{"cut-from-coordinators", 4},
		{"isolate", 4},
		{"slow", 4},
		{"stall-disk", 5},
		{"fail-sync", 2},
		{"full-disk", 3},
		{"kill-coordinator", 3},
		{"depose-coordinator", 3},
		{"deafen-coordinator", 3},
		{"copy-folder", 4},
		{"wipe", 3},
		{"wipe-joiner", 4},
		{"restore-copy", 5},
		{"flip", 3},
		{"flip-joiner", 3},
		{"garble", 3},
		{"clock", 3},
		{"blackout", 2},
		{"drain", 3},
		{"stale", 5},
		{"move", 4},
		{"move-and-back", 3},
		{"min-insync", 2},
	}
}

type weighted struct {
	kind   string
	weight int
}

// schedule draws the faults of a run.
func schedule(rng *rand.Rand, set *Setup) []Fault {
	all, sum := kinds(), 0
	for _, k := range all {
		sum += k.weight
	}
	// Some runs know few kinds of faults and those often, for what they do together.
	var faults []Fault
	gap := 100*time.Millisecond + time.Duration(rng.Int64N(int64(900*time.Millisecond)))
	for at := time.Duration(rng.Int64N(int64(time.Second))); at < set.Length; at += time.Duration(rng.Int64N(int64(2 * gap))) {
		n := rng.IntN(sum)
		kind := ""
		for _, k := range all {
			if n -= k.weight; n < 0 {
				kind = k.kind
				break
			}
		}
		f := Fault{At: at, Kind: kind, Who: who(rng, set), For: time.Duration(rng.Int64N(int64(3 * time.Second)))}
		if rng.IntN(3) == 0 {
			f.For /= 20
		}
		if kind == "cut" || kind == "cut-one-way" || kind == "slow" {
			f.Other = who(rng, set)
		}
		faults = append(faults, f)
		if rng.IntN(8) == 0 { // the same again right after
			f.At += time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
			f.Who = who(rng, set)
			faults = append(faults, f)
			at = f.At
		}
	}
	for n := rng.IntN(4); set.Unclean && n > 0; n-- {
		kind := "laggard-leads"
		if rng.IntN(2) == 0 {
			kind = "newcomer-leads"
		}
		faults = append(faults, Fault{
			At: time.Duration(rng.Int64N(int64(set.Length))), For: time.Duration(rng.Int64N(int64(2 * time.Second))), Kind: kind,
			Who: Who{Role: "follower", Partition: rng.IntN(set.Partitions), N: rng.IntN(set.Brokers)},
		})
	}
	return faults
}

func who(rng *rand.Rand, set *Setup) Who {
	o := Who{Partition: rng.IntN(set.Partitions), N: rng.IntN(set.Brokers)}
	switch rng.IntN(8) {
	case 0, 1, 2:
		o.Role = "leader"
	case 3, 4:
		o.Role = "follower"
	case 5:
		o.Role = "coordinator"
	default:
		o.Role = "broker"
	}
	return o
}

// process finds out whom a fault hits.
func (w *World) hits(o Who) *process {
	p := w.council.partition(o.Partition)
	switch o.Role {
	case "leader":
		if b := w.brokerOf(p.Leader); b != nil {
			return b.p
		}
	case "follower":
		others := slices.DeleteFunc(slices.Clone(p.Replicas), func(n ident.NodeID) bool { return n == p.Leader })
		if len(others) > 0 {
			return w.brokerOf(others[o.N%len(others)]).p
		}
	case "coordinator":
		if m := w.council.leader; m != nil {
			return m.p
		}
	}
	return w.brokers[o.N].p
}

// strike makes a fault happen.
func (w *World) strike(f *Fault) {
	if w.healing {
		return
	}
	p := w.hits(f.Who)
	b := p.broker
	w.note("fault", "%s (%s)", f, p.name)
	later := func(do func()) { w.later(f.For, do) }
	link := func(pairs [][2]int) {
		for _, l := range pairs {
			w.net.hold(l[0], l[1])
		}
		later(func() {
			for _, l := range pairs {
				w.net.heal(l[0], l[1])
			}
		})
	}
	others := func(is func(*process) bool) (pairs [][2]int) {
		for _, o := range w.processes {
			if o != p && is(o) {
				pairs = append(pairs, [2]int{p.machine, o.machine}, [2]int{o.machine, p.machine})
			}
		}
		return pairs
	}
	switch f.Kind {
	case "kill":
		w.kill(p, false)
		later(func() { w.revive(p) })
	case "power":
		w.kill(p, true)
		later(func() { w.revive(p) })
	case "blackout":
		for _, o := range w.processes {
			if o != w.edge {
				w.kill(o, true)
				w.later(f.For+w.between(0, time.Second), func() { w.revive(o) })
			}
		}
	case "pause":
		w.pause(p)
		later(func() { w.resume(p) })
	case "cut":
		o := w.hits(f.Other)
		link([][2]int{{p.machine, o.machine}, {o.machine, p.machine}})
	case "cut-one-way":
		link([][2]int{{p.machine, w.hits(f.Other).machine}})
	case "cut-from-followers":
		link(others(func(o *process) bool {
			return o.broker != nil && o.member == nil || o.broker != nil && o != w.leading()
		}))
	case "cut-from-coordinators":
		link(others(func(o *process) bool { return o.member != nil }))
	case "isolate":
		link(others(func(*process) bool { return true }))
	case "slow":
		d := &w.net.links[p.machine][w.hits(f.Other).machine]
		d.slow = time.Duration(1+f.Who.N) * 5 * time.Millisecond
		later(func() { d.slow = 0 })
	case "kill-coordinator":
		if m := w.council.leader; m != nil {
			w.kill(m.p, false)
			later(func() { w.revive(m.p) })
		}
	case "depose-coordinator":
		w.council.lead(nil)
		w.council.banned = w.now + f.For/2
	case "stale": // another leads, and neither the broker nor the gateways hear of it
		if b != nil && len(w.teams) > 0 { // they are busy, and renewals go on
			for _, feed := range []*feed{b.feed, w.routing} {
				feed.busy = true
				w.in(feed.p, w.set.Lease+f.For, feed.acts)
			}
		} else {
			var news [][2]int
			for _, m := range w.council.members {
				news = append(news, [2]int{m.p.machine, p.machine}, [2]int{m.p.machine, w.edge.machine})
			}
			link(news)
		}
		if m := w.council.leader; m != nil && b != nil {
			drain := cluster.Change{Drain: &cluster.Drain{Node: b.id}}
			w.council.propose(m.p, drain, func(cluster.Answer, error) {})
			later(func() { w.undrain(b) })
		}
	case "wipe-joiner", "flip-joiner":
		w.ambush = f.Kind
	case "delete":
		w.deletes(f)
	case "jump":
		w.jumps(f, p)
	case "laggard-leads":
		w.laggardLeads(f, b)
	case "newcomer-leads":
		w.newcomer = f
	case "flip-alone":
		w.flipAlone(f)
	case "deafen-coordinator":
		w.council.loses = 0.6
		later(func() { w.council.loses = w.set.CoordinatorLoses })
	default:
		if b != nil {
			w.harm(b, f)
			w.command(b, f)
		}
	}
}

// command is what an operator asks for.
func (w *World) command(b *broker, f *Fault) {
	ask := func(c cluster.Change) { w.council.propose(w.edge, c, func(cluster.Answer, error) {}) }
	switch f.Kind {
	case "drain":
		ask(cluster.Change{Drain: &cluster.Drain{Node: b.id}})
		w.later(f.For, func() { w.undrain(b) })
	case "move", "move-and-back":
		i := f.Who.Partition
		p := w.council.partition(i)
		if !slices.Contains(p.Replicas, b.id) {
			b = w.brokerOf(p.Replicas[f.Who.N%len(p.Replicas)])
		}
		for n := range w.brokers {
			if to := w.brokers[(n+f.Who.N)%len(w.brokers)]; !slices.Contains(p.Replicas, to.id) {
				switch {
				case f.Kind == "move":
				case b.id != p.Leader && w.chance(0.5):
					w.unseen = &unseen{part: i, b: b, to: to}
				case b.p != w.leading():
					w.movesBack(i, b, to)
				}
				w.move(i, b, to)
				return
			}
		}
	case "durability":
		w.fsyncs(f, b)
	case "min-insync":
		w.reached.hit("min_insync changed")
		w.minInsync(1 + f.Who.N%w.set.Replicas)
		w.later(f.For, func() { w.minInsync(w.set.MinInsync) })
	}
}

// undrain ends a drain.
func (w *World) undrain(b *broker) {
	w.council.propose(w.edge, cluster.Change{Drain: &cluster.Drain{Node: b.id, Cancel: true}}, func(cluster.Answer, error) {})
}

// later ends a fault, unless the world has been healed of all of them by then.
func (w *World) later(d time.Duration, do func()) {
	w.after(d, func() {
		if !w.healing {
			do()
		}
	})
}

// minInsync changes the setting; it goes on until it is done.
func (w *World) minInsync(n int) {
	w.wanted = n
	change := cluster.Change{Alter: &cluster.Alter{Name: topicName, Patch: cluster.SettingsPatch{MinInsync: &n}}}
	w.council.propose(w.edge, change, func(_ cluster.Answer, err error) {
		if err != nil && w.wanted == n {
			w.minInsync(n)
		}
	})
}

// maxSkew is by how much a clock may be wrong. Two that differ by more than the idempotency
// window make a leader forget producers, as its log says that it may.
const maxSkew = 40 * time.Second

// harm is a fault of a broker's disk, or of its machine.
func (w *World) harm(b *broker, f *Fault) {
	d := b.disk
	later := func(do func()) { w.later(f.For, do) }
	switch f.Kind {
	case "stall-disk":
		d.stalled = w.now + f.For
	case "fail-sync":
		if d.busy {
			d.breaks = true
		}
	case "full-disk":
		d.full = true
		later(func() { d.full = false })
	case "copy-folder":
		d.old = d.image.clone()
	case "wipe":
		w.kill(b.p, true)
		later(func() {
			if !b.p.up && w.maySpare(b) {
				w.note(b.name(), "lost its folder")
				w.reached.hit("folder wiped")
				d.loses(nil)
			}
			w.revive(b.p)
		})
	case "restore-copy":
		w.kill(b.p, false)
		later(func() {
			if !b.p.up && d.old != nil && d.old.noted != d.image.noted && w.maySpare(b) {
				w.note(b.name(), "gets an older copy of its folder")
				w.reached.hit("older copy of a folder restored")
				d.loses(d.old.clone())
			}
			w.revive(b.p)
		})
	case "flip":
		w.flip(b, f.Who.Partition)
	case "garble":
		b.garbles = true
		later(func() { b.garbles = false })
	case "clock":
		w.kill(b.p, false)
		later(func() {
			if !b.p.up {
				w.reached.hit("clock set")
				b.p.skew = w.between(-maxSkew, maxSkew)
			}
			w.revive(b.p)
		})
	}
}

// ambushes is a proposal that is held up on its way, while one who is to join by it loses
// its folder and begins a new life, or finds its log damaged. lost: it never comes there.
func (w *World) ambushes(b *broker, change *cluster.Insync) (lost bool) {
	m := w.council.leader
	if w.ambush == "" || m == nil || w.healing || m.p == b.p {
		return false
	}
	for _, of := range change.Of {
		i := int(of.Partition.Index)
		for _, l := range of.ISR {
			x := w.brokerOf(l.Node)
			if counted(w.council.partition(i), l.Node) || x.p == m.p || !x.p.runs() || !w.maySpare(x) {
				continue
			}
			flips := w.ambush == "flip-joiner"
			if flips && !w.flip(x, i) {
				continue
			}
			w.ambush = ""
			held := [][2]int{{b.p.machine, m.p.machine}}
			lasts := 600 * time.Millisecond
			if lost = !flips && w.chance(0.5); lost { // and is made again before the new life has caught up
				held, lasts = [][2]int{{b.p.machine, x.p.machine}}, w.set.ProposeLimit+100*time.Millisecond
			} else if flips || w.chance(0.5) { // while it catches up with nothing, and perhaps so long that it is proposed again
				held = append(held, [2]int{b.p.machine, x.p.machine})
				if w.chance(0.5) {
					lasts += w.set.ProposeLimit
				}
			}
			for _, l := range held {
				w.net.hold(l[0], l[1])
			}
			w.later(lasts, func() {
				w.net.heal(held[0][0], held[0][1])
				for _, l := range held[1:] { // behind the proposal
					w.later(100*time.Millisecond, func() { w.net.heal(l[0], l[1]) })
				}
			})
			if flips {
				w.note("fault", "partition %d of %s is damaged while %s proposes it", i, x.name(), b.name())
				w.reached.hit("log damaged while its broker joins an ISR")
				x.replicas[i].log.found()
				if w.chance(0.5) { // perhaps before anybody has heard of it
					w.later(w.between(0, 200*time.Millisecond), func() {
						w.kill(x.p, false)
						w.later(20*time.Millisecond, func() { w.revive(x.p) })
					})
				}
				return false
			}
			w.note("fault", "%s loses its folder while %s proposes it", x.name(), b.name())
			w.reached.hit("folder wiped while its broker joins an ISR")
			w.kill(x.p, true)
			x.disk.loses(nil)
			w.after(10*time.Millisecond, func() { w.revive(x.p) })
			return lost
		}
	}
	return false
}

// flip damages a batch at rest, and says whether there was one.
func (w *World) flip(b *broker, part int) bool {
	if w.set.Replicas == 1 || !w.maySpare(b) { // a lone copy may be on its way there
		return false
	}
	return w.spoils(b, part)
}

// spoils does so, whoever else has anything.
func (w *World) spoils(b *broker, part int) bool {
	if !b.p.up || b.replicas[part] == nil {
		return false
	}
	l, s := b.replicas[part].log, b.disk.image.logs[part]
	if s == nil || len(s.kept) == 0 || l.s.bad >= 0 || len(l.s.kept) < len(s.kept) || l.s.start != s.start {
		return false
	}
	w.reached.hit("bit flipped")
	i := w.rng.IntN(len(s.kept))
	l.s.bad, s.bad = i, i
	if c := b.disk.survives().logs[part]; c != nil && i < len(c.kept) {
		c.bad = i
	}
	return true
}

// maySpare says whether the cluster can be expected to go on if a broker loses what it
// has: somebody else who is well may be elected in each of its partitions, and neither
// leaves it as soon as the broker is in sync nor is about to be taken out of the ISR by it.
func (w *World) maySpare(b *broker) bool {
	for i := range w.truth {
		p := w.council.partition(i)
		electable := slices.Concat(p.ISR, p.ELR)
		if !slices.Contains(p.Replicas, b.id) && !slices.Contains(electable, b.id) {
			continue
		}
		well := 0
		for _, n := range electable {
			o := w.brokerOf(n)
			if p.Leader == b.id && (b.asks(i) || o.replicas[i] == nil || !o.replicas[i].seen.serves) {
				continue
			}
			if o != b && !slices.Contains(p.Removing, n) && !o.lost && o.p.runs() && w.council.now().Nodes[n].Serves() && !o.harmed(i) {
				well++
			}
		}
		if well < min(2, w.set.Replicas-1) || well == 0 {
			return false
		}
		if w.set.Replicas == 2 && !slices.ContainsFunc(electable, func(n ident.NodeID) bool { return n != b.id && w.reaches(w.brokerOf(n)) }) {
			return false // the only other one is about to be taken for dead
		}
	}
	return true
}

// reaches says whether a broker can talk with coordinators who lead.
func (w *World) reaches(b *broker) bool {
	m := w.council.leader
	return m != nil && w.council.quorum(m) && (m.p == b.p || w.net.joined(m.p.machine, b.p.machine))
}

// asks says whether a leader may have asked for another ISR.
func (b *broker) asks(part int) bool {
	if b.w.council.partition(part).Leader != b.id {
		return false
	}
	r := b.replica(b.w.ref(part))
	if r == nil {
		return true
	}
	_, _, _, open := r.Proposal()
	return open
}

func (b *broker) harmed(part int) bool { return b.disk.image.rots(part) }

// leading is the process of the leading coordinator; nil: none.
func (w *World) leading() *process {
	if m := w.council.leader; m != nil {
		return m.p
	}
	return nil
}

// kill ends a process, with the power of its machine or without.
func (w *World) kill(p *process, power bool) {
	if !p.up || p == w.edge {
		return
	}
	w.note(p.name, "dies (power %t)", power)
	w.stop(p, power)
	if p.broker != nil {
		p.broker.disk.drop(power)
		if power {
			p.broker.reboots()
		}
	}
}

func (w *World) revive(p *process) {
	if !p.up {
		w.start(p)
	}
}
