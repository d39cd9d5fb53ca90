package balance

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Config tunes a planner. A zero field means its default.
type Config struct {
	ReplicaLag   time.Duration // how far a follower may be behind; 2 s
	ReplaceAfter time.Duration // a node dead for so long is gone for good; 10 min
	Settled      time.Duration // a node or partition that was well for so long stays so; 5 s
	Moves        int           // partitions whose replicas move at a time; 4
	Elections    int           // leaders that go back to the first choice in one plan; 8
}

func (c Config) withDefaults() Config {
	c.ReplicaLag = cmp.Or(c.ReplicaLag, 2*time.Second)
	c.ReplaceAfter = cmp.Or(c.ReplaceAfter, 10*time.Minute)
	c.Settled = cmp.Or(c.Settled, 5*time.Second)
	c.Moves = cmp.Or(c.Moves, 4)
	c.Elections = cmp.Or(c.Elections, 8)
	return c
}

// takeoverAfter is how long a partition stays below min_insync, though somebody electable
// is alive, before that one takes over. Its leader has waited one lag before that: a
// follower that is only slow has had two and a half of them to catch up, and is in sync
// again by itself as soon as it has.
func (c *Config) takeoverAfter() time.Duration { return 3 * c.ReplicaLag / 2 }

const (
	// again is how long the planner waits before it asks for something once more that
	// was not done.
	again = 5 * time.Second
	// longest bounds how long a takeover waits after others.
	longest = time.Minute
	// fullFor is how long a node counts as full after it has said so: retention frees a
	// little now and then, and leaders are not to go to and fro with it.
	fullFor = 30 * time.Second
)

// Planner remembers since when things are so. One goroutine owns it.
type Planner struct {
	cfg        Config
	nodes      map[ident.NodeID]*node
	partitions map[ident.Partition]*partition
	full       map[ident.NodeID]time.Time // when a node last said that its disk takes nothing
	planned    time.Time                  // when moves were planned last
	due        time.Time                  // when the last plan wants the next one at the latest; zero: it does not care
}

// node is what is remembered of one node.
type node struct {
	life  cluster.Life
	over  bool
	since time.Time // since when this life serves, or is over
	asked time.Time // when it was asked to be retired
}

// partition is what is remembered of one that is not as it should be.
type partition struct {
	version uint64
	since   time.Time // since when its version is that
	asked   time.Time // when a change of this version was asked for

	epoch ident.Epoch
	short time.Time // since when it cannot commit, though somebody electable is alive
	taken int       // takeovers since it was well for long
}

// New is a planner without memory.
func New(cfg Config) *Planner {
	return &Planner{cfg: cfg.withDefaults(), nodes: map[ident.NodeID]*node{}, partitions: map[ident.Partition]*partition{}, full: map[ident.NodeID]time.Time{}}
}

// Full notes that a node says that its disk takes no records. It leads nothing then that
// another replica in sync can lead.
func (p *Planner) Full(id ident.NodeID, now time.Time) { p.full[id] = now }

// Due is when something that waited for its time should be planned, though nothing has
// changed; zero: nothing waits so.
func (p *Planner) Due() time.Time { return p.due }

// Plan says what to propose now. live says whether a node answers.
func (p *Planner) Plan(now time.Time, s *cluster.Snapshot, live func(ident.NodeID) bool) []cluster.Change {
	p.due = time.Time{}
	if len(s.Nodes) < 2 {
		return nil // a lone node leads and holds what it can
	}
	v := &view{Planner: p, now: now, s: s, live: live}
	v.remember()
	v.hands()
	changes := v.elections()
	if now.Sub(p.planned) >= time.Second {
		p.planned = now
		changes = append(changes, v.moves()...)
		changes = append(changes, v.retires()...)
	}
	return changes
}

// view is one plan under way.
type view struct {
	*Planner
	now  time.Time
	s    *cluster.Snapshot
	live func(ident.NodeID) bool

	urgent, takeovers, back []cluster.ElectOf
}

// remember takes in which lives and partitions there are.
func (v *view) remember() {
	for id, n := range v.s.Nodes {
		if known := v.nodes[id]; known == nil || known.life != n.Life() || known.over != n.Over() {
			v.nodes[id] = &node{life: n.Life(), over: n.Over(), since: v.now}
		}
	}
	maps.DeleteFunc(v.nodes, func(id ident.NodeID, _ *node) bool { return v.s.Nodes[id] == nil })
	maps.DeleteFunc(v.full, func(id ident.NodeID, at time.Time) bool { return v.s.Nodes[id] == nil || v.now.Sub(at) >= fullFor })
	maps.DeleteFunc(v.partitions, func(ref ident.Partition, _ *partition) bool {
		t := v.s.ByID[ref.Topic]
		if t == nil {
			return true
		}
		_, ok := t.Partition(ref.Index)
		return !ok
	})
}

// of gives what is remembered of a partition.
func (v *view) of(ref ident.Partition, p *cluster.Partition) *partition {
	known := v.partitions[ref]
	if known == nil {
		known = &partition{}
		v.partitions[ref] = known
	}
	if known.version != p.Version {
		known.version, known.since, known.asked = p.Version, v.now, time.Time{}
	}
	return known
}

// may says whether to ask for a change of a partition now, and notes that it is asked.
func (v *view) may(known *partition) bool {
	if !known.asked.IsZero() && v.now.Sub(known.asked) < again {
		return false
	}
	known.asked = v.now
	return true
}

// wakes asks for a plan at a moment.
func (v *view) wakes(at time.Time) {
	if v.due.IsZero() || at.Before(v.due) {
		v.due = at
	}
}

// up says that a node can lead and follow, and answers.
func (v *view) up(id ident.NodeID) bool {
	n := v.s.Nodes[id]
	return n != nil && n.Serves() && n.Broker() && v.live(id)
}

func (v *view) drains(id ident.NodeID) bool { return v.s.Nodes[id].State == cluster.DrainingState }

// stays says that a node is up and takes leaders and replicas.
func (v *view) stays(id ident.NodeID) bool { return v.up(id) && !v.drains(id) }

// isFull says that a node's disk takes nothing, or did a while ago.
func (v *view) isFull(id ident.NodeID) bool {
	_, full := v.full[id]
	return full
}

// takes says that a node is up, takes leaders and has room.
func (v *view) takes(id ident.NodeID) bool { return v.stays(id) && !v.isFull(id) }

// settled says that a node has served for a while.
func (v *view) settled(id ident.NodeID) bool {
	return v.stays(id) && v.now.Sub(v.nodes[id].since) >= v.cfg.Settled
}

// gone says that a node does not come back, or comes back as another.
func (v *view) gone(id ident.NodeID) bool {
	n := v.s.Nodes[id]
	switch {
	case n == nil:
		return true
	case n.Serves():
		return !n.Broker()
	case !n.Over():
		return false
	}
	return v.up(n.Heir) || v.now.Sub(v.nodes[id].since) >= v.cfg.ReplaceAfter
}

// topics lists the topics by name, so that a plan does not hang on the order of a map.
func (v *view) topics() []*cluster.Topic {
	return slices.SortedFunc(maps.Values(v.s.Topics), func(a, b *cluster.Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// retires forgets nodes that are gone and hold nothing.
func (v *view) retires() (changes []cluster.Change) {
	holds := map[ident.NodeID]bool{}
	for _, t := range v.s.Topics {
		for k := range t.Partitions {
			for _, id := range t.Partitions[k].Replicas {
				holds[id] = true
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(v.nodes), func(a, b ident.NodeID) int { return bytes.Compare(a[:], b[:]) }) {
		known := v.nodes[id]
		if !known.over || holds[id] || !v.gone(id) || !known.asked.IsZero() && v.now.Sub(known.asked) < again {
			continue
		}
		known.asked = v.now
		changes = append(changes, cluster.Change{Retire: &cluster.Retire{Node: id}})
	}
	return changes
}
