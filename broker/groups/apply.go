package groups

import (
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
		}
	}
	for id, t := range s.ByID {
		table, was := s.Groups[id], former.ByID[id]
		moved := was == nil || was.Modified != t.Modified
		if moved {
			g.leadLocked(t)
		}
		if !moved && table == former.Groups[id] {
			continue
		}
		since := former.Index
		if moved {
			since = 0
		}
		for _, p := range g.postsLocked(t) {
			p.see(table, since)
		}
	}
}

// leaveLocked ends what there is of a topic that was deleted.
func (g *Groups) leaveLocked(t *cluster.Topic) {
	for _, p := range g.postsLocked(t) {
		p.end(fault.New(fault.TopicNotFound, "topic %q was deleted", t.Name))
		delete(g.posts, p.ref)
	}
}

// leadLocked makes the posts of a topic what its partitions' leaders are.
func (g *Groups) leadLocked(t *cluster.Topic) {
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
		}
	}
}

func (g *Groups) postsLocked(t *cluster.Topic) (all []*post) {
	for i := range t.Partitions {
		if p := g.posts[t.Ref(t.Partitions[i].Index)]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// see takes in the topic's groups, those that changed after an index.
func (p *post) see(table *cluster.GroupTable, since uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, u := range p.units {
		if now := table.Get(u.name); now == nil || now.ID != id {
			u.end(fault.New(fault.GroupNotFound, "group %q was deleted", u.name))
			delete(p.units, id)
		}
	}
	for group := range table.Since(since) {
		switch u := p.units[group.ID]; {
		case u != nil && !u.over():
			u.see(group)
		case len(group.Members) > 0:
			p.addLocked(group)
		}
	}
}
