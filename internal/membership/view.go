package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/memberlist"

	"tidewire/internal/ident"
)

// View is what this node knows of the others at one moment.
type View struct {
	Version uint64
	Nodes   []Node // by id; this node is among them
}

// view gathers what memberlist tells. Its callbacks run inside memberlist's own loops
// and locks: they copy what they get and never wait.
type view struct {
	self   func() Node
	logger *slog.Logger

	mu        sync.Mutex
	members   map[string]Node            // by memberlist's name
	strangers map[ident.ClusterID]string // other clusters that were met, maxStrangers at most, and where
	latest    *View
	changed   chan struct{} // closed when latest is replaced
}

func newView(self func() Node, logger *slog.Logger) *view {
	return &view{self: self, logger: logger, members: map[string]Node{}, strangers: map[ident.ClusterID]string{}, latest: &View{}, changed: make(chan struct{})}
}

func (v *view) NotifyJoin(n *memberlist.Node)   { v.put(n) }
func (v *view) NotifyUpdate(n *memberlist.Node) { v.put(n) }

func (v *view) NotifyLeave(n *memberlist.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.members, n.Name)
	v.rebuildLocked()
}

func (v *view) put(n *memberlist.Node) {
	m, err := decode(n.Meta)
	if err != nil {
		return // admit has refused it
	}
	m.Addresses.Gossip = address(n)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.members[n.Name] = m
	v.rebuildLocked()
}

// rebuildLocked makes the view anew: of several processes of one node the one that
// started last, and nobody of another cluster.
func (v *view) rebuildLocked() {
	mine := v.self().Cluster
	byID := map[ident.NodeID]Node{}
	for _, m := range v.members {
		if foreign(mine, m.Cluster) {
			continue
		}
		if old, ok := byID[m.ID]; !ok || old.Started < m.Started {
			byID[m.ID] = m
		}
	}
	next := &View{Version: v.latest.Version + 1}
	for _, m := range byID {
		next.Nodes = append(next.Nodes, m)
	}
	slices.SortFunc(next.Nodes, func(a, b Node) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	v.latest = next
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) rebuild() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rebuildLocked()
}

func (v *view) now() (*View, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.latest, v.changed
}

func (v *view) next(ctx context.Context, after uint64) (*View, error) {
	for {
		latest, changed := v.now()
		if latest.Version > after {
			return latest, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// twins are nodes that live side by side under one name, or one id: each a pair.
func (v *view) twins() (all []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	names := map[string]Node{}
	for _, n := range v.latest.Nodes {
		if other, there := names[n.Name]; there {
			all = append(all, fmt.Sprintf("nodes %s at %s and %s at %s have the name %q", other.ID, other.Addresses.Gossip, n.ID, n.Addresses.Gossip, n.Name))
		}
		names[n.Name] = n
	}
	ids := map[ident.NodeID]Node{}
	for _, n := range v.members {
		if other, there := ids[n.ID]; there {
			pair := []string{other.Addresses.Gossip, n.Addresses.Gossip}
			slices.Sort(pair)
			all = append(all, fmt.Sprintf("node %s runs at %s and at %s: its data folder was copied", n.ID, pair[0], pair[1]))
		}
		ids[n.ID] = n
	}
	return all
}

// maxStrangers bounds the other clusters that are remembered.
const maxStrangers = 16

func (v *view) meets(n *memberlist.Node, m Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, met := v.strangers[m.Cluster]; !met && len(v.strangers) < maxStrangers {
		v.strangers[m.Cluster] = address(n)
	}
}

// metStrangers are other clusters, and where one of each was.
func (v *view) metStrangers() map[ident.ClusterID]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.strangers)
}

func address(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// foreign says whether both are known clusters, and not the same.
func foreign(mine, theirs ident.ClusterID) bool {
	return mine != (ident.ClusterID{}) && theirs != (ident.ClusterID{}) && mine != theirs
}

var errForeign = errors.New("it belongs to another cluster")

// NotifyAlive keeps everybody out who is of another cluster, or none of ours at all.
func (v *view) NotifyAlive(n *memberlist.Node) error {
	m, err := decode(n.Meta)
	if err != nil {
		return err
	}
	if !foreign(v.self().Cluster, m.Cluster) {
		return nil
	}
	v.meets(n, m)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.members[n.Name]; known { // it had no cluster before
		v.members[n.Name] = m
		v.rebuildLocked()
	}
	return errForeign
}

// NotifyMerge refuses an exchange with a node all of whose friends are of another
// cluster; where only some are, NotifyAlive keeps those out.
func (v *view) NotifyMerge(peers []*memberlist.Node) error {
	mine, strangers, friends := v.self().Cluster, 0, 0
	for _, n := range peers {
		switch m, err := decode(n.Meta); {
		case err != nil:
		case foreign(mine, m.Cluster):
			strangers++
			v.meets(n, m)
		default:
			friends++
		}
	}
	if strangers > 0 && friends == 0 {
		return errForeign
	}
	return nil
}
