package groups

import (
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// names are those of a topic's groups by their ids. Some may be of groups that are not there
// any more.
type names map[ident.GroupID]string

// staleNames is how many of them there may be, beside as many as there are groups.
const staleNames = 256

// learnLocked takes in what changed of a topic's groups.
func (g *Groups) learnLocked(topic ident.TopicID, n *news) {
	all := g.names[topic]
	if all == nil || len(all)+len(n.changed) > 2*n.table.Len()+staleNames {
		all = make(names, n.table.Len())
		for group := range n.table.All() {
			all[group.ID] = group.Name
		}
	}
	for _, group := range n.changed {
		all[group.ID] = group.Name
	}
	g.names[topic] = all
}

// named are the groups of a topic that have certain ids, one each.
func (g *Groups) named(topic ident.TopicID, ids []ident.GroupID) (found []*cluster.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	table := g.snapshot.Groups[topic]
	seen := make(map[ident.GroupID]bool, len(ids))
	for _, id := range ids {
		if group := table.Get(g.names[topic][id]); group != nil && group.ID == id && !seen[id] {
			seen[id] = true
			found = append(found, group)
		}
	}
	return found
}
