package groups

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// Apply takes in a snapshot. What the host does of it has happened: where this node leads
// by the snapshot, its replica knows.
func (g *Groups) Apply(s *cluster.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	former := g.snapshot
	g.snapshot = s
	for id, t := range former.ByID {
		if s.ByID[id] == nil {
			g.leaveLocked(t)
			delete(g.names, id)
		}
	}
	for id, t := range s.ByID {
		var begun []*post
		if was := former.ByID[id]; was == nil || was.Modified != t.Modified {
			begun = g.leadLocked(t)
		}
		for _, p := range begun {
			p.begin(s.Groups[id])
		}
		if news := newsOf(former.Groups[id], s.Groups[id], former.Index); news.any() {
			g.learnLocked(id, &news)
			for _, p := range g.postsLocked(t) {
				if !slices.Contains(begun, p) {
					p.see(&news)
				}
			}
		}
	}
}

// news is what changed of a topic's groups.
type news struct {
	table   *cluster.GroupTable // as it is now
	changed []*cluster.Group
	fewer   bool // some are not there any more
}

func newsOf(former, now *cluster.GroupTable, since uint64) news {
	if former == now {
		return news{}
	}
	n := news{table: now, changed: slices.Collect(now.Since(since))}
	more := 0
	for _, group := range n.changed {
		switch was := former.Get(group.Name); {
		case was == nil:
			more++
		case was.ID != group.ID:
			n.fewer = true
		}
	}
	n.fewer = n.fewer || former.Len()+more > now.Len()
	return n
}

func (n *news) any() bool { return len(n.changed) > 0 || n.fewer }

// leaveLocked ends what there is of a topic that was deleted.
func (g *Groups) leaveLocked(t *cluster.Topic) {
	for _, p := range g.postsLocked(t) {
		p.end(fault.New(fault.TopicNotFound, "topic %q was deleted", t.Name))
		delete(g.posts, p.ref)
	}
}

// leadLocked makes the posts of a topic what its partitions' leaders are. It gives the new
// ones.
func (g *Groups) leadLocked(t *cluster.Topic) (begun []*post) {
	for i := range t.Partitions {
		part := &t.Partitions[i]
		ref := t.Ref(part.Index)
		leads := part.Leader == g.cfg.Self
		p := g.posts[ref]
		if p != nil && (!leads || p.epoch != part.LeaderEpoch) {
			p.end(notLed(ref))
			delete(g.posts, ref)
			p = nil
		}
		if leads && p == nil {
			g.posts[ref] = newPost(g, ref, part.LeaderEpoch, time.Now())
			begun = append(begun, g.posts[ref])
		}
	}
	return begun
}

func (g *Groups) postsLocked(t *cluster.Topic) (all []*post) {
	for i := range t.Partitions {
		if p := g.posts[t.Ref(t.Partitions[i].Index)]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// begin puts groups with members to work, and those that have dead letters left.
func (p *post) begin(table *cluster.GroupTable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := false
	for group := range table.All() {
		if len(group.Members) > 0 {
			p.addLocked(group)
		} else {
			idle = true
		}
	}
	if idle && p.epoch > 1 { // there was a leader who may have left some
		p.g.tasks.add(p.inherit)
	}
}

// see takes in what changed of the topic's groups.
func (p *post) see(n *news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.fewer {
		for id, u := range p.units {
			if now := n.table.Get(u.name); now == nil || now.ID != id {
				u.end(fault.New(fault.GroupNotFound, "group %q was deleted", u.name))
				delete(p.units, id)
			}
		}
	}
	for _, group := range n.changed {
		switch u := p.units[group.ID]; {
		case u != nil && !u.over():
			u.see(group)
		case len(group.Members) > 0:
			p.addLocked(group)
		}
	}
}
