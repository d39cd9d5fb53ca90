package cluster

import (
	"fmt"
	"iter"
)

// partBytes is about how much of a delta goes into one part. A topic and a group are never
// split, so a part may be longer by one.
const partBytes = 256 << 10

// Parts are the delta in pieces of a bounded size, one at least: none but the last has
// More set to false. Whoever goes over them holds one at a time.
func (d *Delta) Parts() iter.Seq[*Delta] {
	return func(yield func(*Delta) bool) {
		part, bytes := d.part(), 0
		full := func(more int) bool { // makes room for so much more
			if bytes > 0 && bytes+more > partBytes {
				part.More = true
				if !yield(part) {
					return false
				}
				part, bytes = d.part(), 0
			}
			bytes += more
			return true
		}
		for _, t := range d.Topics {
			if !full(t.size()) {
				return
			}
			part.Topics = append(part.Topics, t)
		}
		for _, n := range d.Nodes {
			if !full(nodeBytes) {
				return
			}
			part.Nodes = append(part.Nodes, n)
		}
		for _, id := range d.NodesGone {
			if !full(idBytes) {
				return
			}
			part.NodesGone = append(part.NodesGone, id)
		}
		for _, gone := range d.Deleted {
			if !full(2 * idBytes) {
				return
			}
			part.Deleted = append(part.Deleted, gone)
		}
		for _, g := range d.Groups {
			if !full(g.size()) {
				return
			}
			part.Groups = append(part.Groups, g)
		}
		for _, gone := range d.GroupsGone {
			if !full(3*idBytes + len(gone.Name)) {
				return
			}
			part.GroupsGone = append(part.GroupsGone, gone)
		}
		yield(part)
	}
}

// part is a delta of the same two snapshots that holds nothing yet.
func (d *Delta) part() *Delta {
	return &Delta{From: d.From, To: d.To, Cluster: d.Cluster, AllNodes: d.AllNodes, DeletedFloor: d.DeletedFloor}
}

// Join adds the next part.
func (d *Delta) Join(part *Delta) error {
	if !d.More || part.From != d.From || part.To != d.To || part.Cluster != d.Cluster || part.AllNodes != d.AllNodes || part.DeletedFloor != d.DeletedFloor {
		return fmt.Errorf("a part of the changes from index %d to %d does not fit to those from %d to %d", part.From, part.To, d.From, d.To)
	}
	d.Topics, d.Nodes = append(d.Topics, part.Topics...), append(d.Nodes, part.Nodes...)
	d.NodesGone, d.Deleted = append(d.NodesGone, part.NodesGone...), append(d.Deleted, part.Deleted...)
	d.Groups, d.GroupsGone = append(d.Groups, part.Groups...), append(d.GroupsGone, part.GroupsGone...)
	d.More = part.More
	return nil
}

// About how long things are in JSON.
const (
	idBytes        = 40
	nodeBytes      = 800
	topicBytes     = 600
	partitionBytes = 300
	groupBytes     = 500
	memberBytes    = 150
	ownerBytes     = 100
)

// size is about how long the topic is in JSON.
func (t *Topic) size() int {
	n := topicBytes + len(t.Partitions)*partitionBytes
	for i := range t.Partitions {
		p := &t.Partitions[i]
		n += idBytes * (len(p.Replicas) + len(p.ISR) + len(p.ELR) + len(p.Adding) + len(p.Removing))
	}
	return n
}

// size is about how long the group is in JSON.
func (g *Group) size() int {
	n := groupBytes + len(g.Name) + len(g.Settings.DeadLetter)
	for i := range g.Members {
		n += memberBytes + len(g.Members[i].ID)
	}
	for i := range g.Owners {
		n += ownerBytes + len(g.Owners[i].Member) + len(g.Owners[i].Next)
	}
	return n
}
