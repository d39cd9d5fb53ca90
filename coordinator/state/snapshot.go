package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"tidewire/coordinator/layout"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// snapshotVersion is the format of a snapshot's bytes. Formats 1 and 2 are the same with
// fewer fields.
const snapshotVersion = 3

const snapshotMagic = "TWST"

// image is the whole state as a snapshot keeps it, every list in a fixed order.
type image struct {
	Cluster      ident.ClusterID
	Index        uint64
	Now          int64
	DeletedFloor uint64
	Nodes        []*cluster.Node  // by id
	Topics       []*cluster.Topic // by name
	Deleted      []deletedTopic   // oldest first
	Answers      []remembered     // oldest first
	Groups       []groupImage     `json:",omitempty"` // by id
}

// groupImage is a group with what it has done.
type groupImage struct {
	Group    *cluster.Group
	Progress []cluster.Progress // by partition
}

// Capture is the state at one index, apart from the machine it was taken from:
// it is written while the machine goes on.
type Capture struct {
	view    *cluster.Snapshot
	now     int64
	deleted []deletedTopic
	answers []remembered
	groups  []groupImage // in any order
}

// Capture takes the state as it is now. It copies little: the bulk is shared
// and immutable, and what a group has done is copied when it does more.
func (m *Machine) Capture() *Capture {
	m.captures++
	groups := make([]groupImage, 0, len(m.groups))
	for _, g := range m.groups {
		groups = append(groups, groupImage{g.shown, g.progress})
	}
	return &Capture{
		groups:  groups,
		view:    m.Snapshot(),
		now:     m.now,
		deleted: slices.Clip(m.deleted), // only ever appended to, and cut at the front
		answers: m.answers.oldestFirst(),
	}
}

/*
WriteTo writes the snapshot:

	+--------+---------+----------------+-----------------+------+
	| "TWST" | version | JSON length    | CRC-32C of JSON | JSON |
	| 4      | 1       | 8, big endian  | 4, big endian   |      |
	+--------+---------+----------------+-----------------+------+

The same state always gives the same bytes.
*/
func (c *Capture) WriteTo(w io.Writer) (int64, error) {
	body, err := json.Marshal(c.image())
	if err != nil {
		return 0, fmt.Errorf("encode snapshot: %w", err)
	}
	head := append([]byte(snapshotMagic), snapshotVersion)
	head = binary.BigEndian.AppendUint64(head, uint64(len(body)))
	head = binary.BigEndian.AppendUint32(head, checksum(snapshotVersion, body))
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	k, err := w.Write(body)
	return int64(n + k), err
}

func (c *Capture) image() *image {
	i := &image{
		Cluster:      c.view.Cluster,
		Index:        c.view.Index,
		Now:          c.now,
		DeletedFloor: c.view.DeletedFloor,
		Deleted:      c.deleted,
		Answers:      c.answers,
	}
	for _, name := range slices.Sorted(maps.Keys(c.view.Topics)) {
		i.Topics = append(i.Topics, c.view.Topics[name])
	}
	ids := slices.SortedFunc(maps.Keys(c.view.Nodes), func(a, b ident.NodeID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		i.Nodes = append(i.Nodes, c.view.Nodes[id])
	}
	slices.SortFunc(c.groups, func(a, b groupImage) int { return bytes.Compare(a.Group.ID[:], b.Group.ID[:]) })
	i.Groups = c.groups
	return i
}

// headBytes is the length of everything before the JSON.
const headBytes = len(snapshotMagic) + 1 + 8 + crc32.Size

// Restore reads a snapshot. The machine it gives holds nothing but what the
// snapshot says.
func Restore(b []byte) (*Machine, error) {
	if len(b) < headBytes || string(b[:4]) != snapshotMagic {
		return nil, errors.New("this is no snapshot of the coordinator, or it is cut short")
	}
	version, body := b[4], b[headBytes:]
	if n := binary.BigEndian.Uint64(b[5:]); n != uint64(len(body)) {
		return nil, fmt.Errorf("the snapshot holds %d bytes where it says %d", len(body), n)
	}
	if got, want := checksum(version, body), binary.BigEndian.Uint32(b[13:]); got != want {
		return nil, fmt.Errorf("the snapshot's checksum is %08x, not %08x: its bytes have changed", got, want)
	}
	if version < formatLone || version > snapshotVersion {
		return nil, fmt.Errorf("snapshot format %d is not known to this version of tidewire, which knows up to %d", version, snapshotVersion)
	}
	var i image
	if err := cluster.Strictly(body, &i); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return i.machine(), nil
}

// Index is the last entry applied.
func (m *Machine) Index() uint64 { return m.view.Index }

func (i *image) machine() *Machine {
	m := New()
	m.now = i.Now
	m.view.Cluster = i.Cluster
	m.view.Index, m.shown = i.Index, i.Index
	m.view.DeletedFloor = i.DeletedFloor
	m.deleted = i.Deleted
	m.answers = newAnswers(i.Answers)
	for _, d := range i.Deleted {
		m.view.Deleted[d.Topic] = d.Index
	}
	for _, n := range i.Nodes {
		m.view.Nodes[n.ID] = n
	}
	for _, t := range i.Topics {
		m.put(t)
	}
	m.restoreGroups(i.Groups)
	return m
}

// check finds what no machine could have written, so that nothing later stumbles
// over it.
func (i *image) check() error {
	if len(i.Deleted) > MaxDeleted || len(i.Answers) > maxAnswers {
		return errors.New("a table is longer than its bound")
	}
	if len(i.Nodes) > cluster.MaxNodes {
		return errors.New("there are more nodes than there may be")
	}
	nodes := map[ident.NodeID]bool{}
	for _, n := range i.Nodes {
		if n == nil {
			return errors.New("a node is missing")
		}
		if nodes[n.ID] {
			return fmt.Errorf("node %s is there twice", n.ID)
		}
		nodes[n.ID] = true
	}
	names, ids := map[string]bool{}, map[ident.TopicID]bool{}
	for _, t := range i.Topics {
		switch {
		case t == nil:
			return errors.New("a topic is missing")
		case names[t.Name] || ids[t.ID]:
			return fmt.Errorf("topic %q is there twice", clip(t.Name))
		}
		names[t.Name], ids[t.ID] = true, true
		if err := checkTopic(t); err != nil {
			return fmt.Errorf("topic %q: %w", clip(t.Name), err)
		}
	}
	return i.checkGroups()
}

func checkTopic(t *cluster.Topic) error {
	var open []ident.HashRange
	for k := range t.Partitions {
		p := &t.Partitions[k]
		if k > 0 && p.Index <= t.Partitions[k-1].Index {
			return errors.New("partitions are out of order")
		}
		if err := checkReplicas(p); err != nil {
			return fmt.Errorf("partition %d: %w", p.Index, err)
		}
		if p.Leader != (ident.NodeID{}) && !slices.Contains(p.ISR, p.Leader) {
			return fmt.Errorf("partition %d is led by a node outside its ISR", p.Index)
		}
		if p.Purged < 0 || p.Purged > maxOffset {
			return fmt.Errorf("partition %d begins at offset %d", p.Index, p.Purged)
		}
		if p.State == cluster.Open {
			open = append(open, p.Range)
		}
	}
	return layout.Check(open)
}

func checkReplicas(p *cluster.Partition) error {
	if len(p.Replicas) == 0 || len(p.ISR) == 0 {
		return errors.New("no replica, or none in sync")
	}
	outside := func(n ident.NodeID) bool { return !slices.Contains(p.Replicas, n) }
	for _, ids := range [][]ident.NodeID{p.Replicas, p.ISR, p.ELR, p.Adding, p.Removing} {
		if len(ids) > cluster.MaxNodes || slices.ContainsFunc(ids, outside) {
			return errors.New("a node is in sync, eligible or on the move and no replica")
		}
		for i, n := range ids {
			if slices.Contains(ids[:i], n) {
				return fmt.Errorf("node %s is listed twice", n)
			}
		}
	}
	if slices.ContainsFunc(p.ELR, func(n ident.NodeID) bool { return slices.Contains(p.ISR, n) }) {
		return errors.New("a node is in the ISR and the ELR")
	}
	return nil
}
