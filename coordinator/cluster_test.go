package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"tidewire/coordinator"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// net3 connects the coordinators of a test in this process, and cuts them off.
type net3 struct {
	mu    sync.Mutex
	nodes map[ident.NodeID]*coordinator.Coordinator
	off   map[ident.NodeID]bool
	conns map[net.Conn]ident.NodeID
	where map[string]ident.NodeID
}

func newNet() *net3 {
	return &net3{nodes: map[ident.NodeID]*coordinator.Coordinator{}, off: map[ident.NodeID]bool{}, conns: map[net.Conn]ident.NodeID{}, where: map[string]ident.NodeID{}}
}

var errNoWay = errors.New("no way there")

// link is what one node has of the net.
type link struct {
	*net3
	self ident.NodeID
}

func (l link) to(id ident.NodeID) (*coordinator.Coordinator, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off[l.self] || l.off[id] || l.nodes[id] == nil {
		return nil, errNoWay
	}
	return l.nodes[id], nil
}

func (l link) Propose(ctx context.Context, to ident.NodeID, r cluster.RequestID, c cluster.Change) (cluster.Answer, error) {
	n, err := l.to(to)
	if err != nil {
		return cluster.Answer{}, err
	}
	return n.ServePropose(ctx, r, c)
}

func (l link) Renew(ctx context.Context, to ident.NodeID, r cluster.Renewal) (cluster.Lease, error) {
	n, err := l.to(to)
	if err != nil {
		return cluster.Lease{}, err
	}
	return n.ServeRenew(ctx, r)
}

func (l link) Report(ctx context.Context, to ident.NodeID, s cluster.Suspicion) error {
	n, err := l.to(to)
	if err != nil {
		return err
	}
	return n.ServeReport(ctx, s)
}

func (l link) Join(ctx context.Context, to ident.NodeID, j cluster.Join) (cluster.Joined, error) {
	n, err := l.to(to)
	if err != nil {
		return cluster.Joined{}, err
	}
	return n.ServeJoin(ctx, j)
}

func (l link) Touch(ctx context.Context, to ident.NodeID, signs []cluster.SignOfLife) (cluster.Lost, error) {
	n, err := l.to(to)
	if err != nil {
		return cluster.Lost{}, err
	}
	return n.ServeTouch(ctx, signs)
}

func (l link) Progress(ctx context.Context, to ident.NodeID, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	n, err := l.to(to)
	if err != nil {
		return nil, err
	}
	return n.ServeProgress(ctx, of)
}

func (l link) Decided(ctx context.Context, to ident.NodeID) (uint64, error) {
	n, err := l.to(to)
	if err != nil {
		return 0, err
	}
	return n.ServeDecided(ctx)
}

func (l link) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// Under the lock that a cut takes: one that is on its way there is cut as well.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off[l.self] || l.off[l.where[address]] {
		_ = conn.Close() // nothing was said on it
		return nil, errNoWay
	}
	l.conns[conn] = l.self
	return conn, nil
}

// others is everybody, as gossip would know it.
func (l link) others() (all []ident.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.nodes {
		all = append(all, id)
	}
	return all
}

func (n *net3) cut(id ident.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off[id] = true
	for conn, from := range n.conns {
		if from == id || n.where[conn.RemoteAddr().String()] == id {
			_ = conn.Close() // the other end hears of it
			delete(n.conns, conn)
		}
	}
}

func nodeOf(id ident.NodeID) cluster.Node {
	return cluster.Node{ID: id, Name: fmt.Sprintf("n%d", id[0]), Roles: []string{"broker", "coordinator"}, Storage: ident.StorageID{id[0]}}
}

// run opens a coordinator of the net and runs it until stop, or the end of the test.
func (n *net3) run(t testing.TB, id ident.NodeID, dir string, adjust func(*coordinator.Config)) (c *coordinator.Coordinator, stop func()) {
	t.Helper()
	l := link{n, id}
	cfg := coordinator.Config{
		Dir: dir, Bind: "127.0.0.1:0", Node: nodeOf(id), Found: true, Join: id[0] != 1,
		Dial: l.Dial, Peers: l, Others: l.others,
	}
	if adjust != nil {
		adjust(&cfg)
	}
	c, end := start(t, cfg)
	n.mu.Lock()
	n.nodes[id], n.where[c.Addr()] = c, id
	delete(n.off, id)
	n.mu.Unlock()
	return c, func() {
		n.mu.Lock()
		delete(n.nodes, id)
		n.mu.Unlock()
		end()
	}
}

// patience is for a machine that does much else; bounds of time are those of the e2e soaks.
const patience = 15 * time.Second

func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func (n *net3) three(t *testing.T) (all []*coordinator.Coordinator) {
	t.Helper()
	for i := byte(1); i <= 3; i++ {
		c, _ := n.run(t, ident.NodeID{i}, t.TempDir(), nil)
		all = append(all, c)
	}
	began := time.Now()
	eventually(t, 10*time.Second, "all three vote, and know it", func() bool {
		return !slices.ContainsFunc(all, func(c *coordinator.Coordinator) bool {
			return len(c.Status().Voters) != 3 || c.Snapshot().Index == 0
		})
	})
	t.Logf("three of them after %s", time.Since(began).Round(time.Millisecond))
	return all
}

func leading(t *testing.T, all []*coordinator.Coordinator) int {
	t.Helper()
	at := -1
	eventually(t, patience, "one of them leads", func() bool {
		at = slices.IndexFunc(all, func(c *coordinator.Coordinator) bool { return c.Status().Leads })
		return at >= 0
	})
	return at
}

func TestACoordinatorComesInByTheOneWay(t *testing.T) {
	n := newNet()
	all := n.three(t)
	for i, c := range all {
		if s := c.Snapshot(); s.Cluster != all[0].Snapshot().Cluster || s.Cluster == (ident.ClusterID{}) {
			t.Errorf("%d is of cluster %s", i+1, s.Cluster)
		}
		if _, created, err := c.CreateTopic(t.Context(), topic(fmt.Sprint("t", i), 2)); err == nil {
			t.Errorf("%d: created without brokers: %v", i+1, created)
		}
	}
	for i := range all {
		register := cluster.Change{Register: &cluster.Register{Node: nodeOf(ident.NodeID{byte(i + 1)})}}
		a, err := all[i].Propose(t.Context(), register)
		if err != nil {
			t.Fatal(err)
		}
		if s := all[i].Snapshot(); s.Index < a.Index || s.Nodes[ident.NodeID{byte(i + 1)}].BrokerEpoch != a.Epoch {
			t.Fatalf("%d: the feed is behind a change that was answered", i+1)
		}
		if _, err := all[i].Propose(t.Context(), cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{byte(i + 1)}, Epoch: a.Epoch}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range all {
		if _, created, err := c.CreateTopic(t.Context(), topic(fmt.Sprint("t", i), 2)); err != nil || !created {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	if _, _, err := all[1].CreateTopic(t.Context(), topic("t0", 5)); !fault.Is(err, fault.TopicExists) {
		t.Errorf("a refusal by way of another coordinator: %v", err)
	}
}

func TestLeasesAreGrantedByTheLeaderAlone(t *testing.T) {
	n := newNet()
	all := n.three(t)
	at := leading(t, all)
	life := cluster.Life{Node: ident.NodeID{1}}
	for i, c := range all {
		if _, err := c.ServeRenew(t.Context(), cluster.Renewal{Life: life}); i != at && control.LeaderIn(err) != (ident.NodeID{byte(at + 1)}) {
			t.Errorf("%d does not name the leader: %v", i+1, err)
		}
	}
	epoch, err := all[0].Register(t.Context(), nodeOf(life.Node))
	if err != nil {
		t.Fatal(err)
	}
	life.Epoch = epoch
	for i, c := range all {
		l, err := c.Renew(t.Context(), cluster.Renewal{Life: life})
		if err != nil || l.For != 2*time.Second || l.Index < uint64(epoch) || l.Leader != (ident.NodeID{byte(at + 1)}) {
			t.Errorf("%d: %+v, %v", i+1, l, err)
		}
		if _, err := c.Renew(t.Context(), cluster.Renewal{Life: cluster.Life{Node: life.Node, Epoch: epoch - 1}}); !fault.Is(err, fault.Fenced) {
			t.Errorf("%d renews a life that is over: %v", i+1, err)
		}
	}
	// Cut off, it cannot prove that it leads, and grants nothing.
	n.cut(ident.NodeID{byte(at + 1)})
	if _, err := all[at].ServeRenew(t.Context(), cluster.Renewal{Life: life}); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a leader without a majority: %v", err)
	}
}

// What any coordinator has answered is in what the leading one says is decided, whoever
// asks, and the snapshots of all come there. One that is cut off says nothing.
func TestWhatWasAnsweredIsDecided(t *testing.T) {
	n := newNet()
	all := n.three(t)
	at := leading(t, all)
	epoch, err := all[0].Register(t.Context(), nodeOf(ident.NodeID{1}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		made, _, err := all[i%3].CreateTopic(t.Context(), topic(fmt.Sprint("t", i), 1))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // of which no snapshot tells
			propose(t, all[at], cluster.Change{Commit: &cluster.Commit{Leader: cluster.Life{Node: ident.NodeID{1}, Epoch: epoch}}})
		}
		for k, c := range all {
			index, err := c.Decided(t.Context())
			if err != nil || index != made.Modified {
				t.Fatalf("%d says that %d is decided, and the topic is of %d: %v", k+1, index, made.Modified, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			s, err := c.Next(ctx, index-1)
			cancel()
			if err != nil || s.ByID[made.ID] == nil {
				t.Fatalf("%d has not heard of it: %v", k+1, err)
			}
		}
	}
	for i, c := range all {
		if _, err := c.ServeDecided(t.Context()); i != at && control.LeaderIn(err) != (ident.NodeID{byte(at + 1)}) {
			t.Errorf("%d does not name the leader: %v", i+1, err)
		}
	}
	n.cut(ident.NodeID{byte(at + 1)})
	if _, err := all[at].ServeDecided(t.Context()); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a leader without a majority: %v", err)
	}
}

// Changes are asked for at every coordinator while the leaders are cut off in turn:
// each is made once, and all hold the same in the end.
func TestChangesOutliveTheirLeaders(t *testing.T) {
	n := newNet()
	all := n.three(t)
	if _, err := all[0].Register(t.Context(), nodeOf(ident.NodeID{1})); err != nil {
		t.Fatal(err)
	}
	const each = 25
	var wg sync.WaitGroup
	var longest time.Duration
	var mu sync.Mutex
	for i, c := range all {
		wg.Go(func() {
			for k := range each {
				began := time.Now()
				for { // one that is cut off makes no change; it must not make two either
					_, created, err := c.CreateTopic(context.Background(), topic(fmt.Sprintf("t-%d-%d", i, k), 1))
					if err == nil && created {
						break
					}
					if fault.KindOf(err) != fault.CoordinatorUnavailable {
						t.Errorf("topic %d-%d: created %v, %v", i, k, created, err)
						break
					}
				}
				mu.Lock()
				longest = max(longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	for range 3 {
		at := leading(t, all)
		id := ident.NodeID{byte(at + 1)}
		n.cut(id)
		rest := slices.Delete(slices.Clone(all), at, at+1)
		leading(t, rest)
		n.mu.Lock()
		delete(n.off, id)
		n.mu.Unlock()
		eventually(t, patience, "it follows again", func() bool { return !all[at].Status().Leads && all[at].Status().Heard < 200*time.Millisecond })
	}
	wg.Wait()
	t.Logf("longest wait for a change: %s", longest.Round(time.Millisecond))
	for i, c := range all {
		eventually(t, patience, fmt.Sprint(i+1, " has all topics"), func() bool { return len(c.Snapshot().Topics) == 3*each })
	}
}

func TestAMemberComesBackAtAnotherAddress(t *testing.T) {
	n := newNet()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	stops := make([]func(), 3)
	all := make([]*coordinator.Coordinator, 3)
	for i := range all {
		all[i], stops[i] = n.run(t, ident.NodeID{byte(i + 1)}, dirs[i], nil)
	}
	eventually(t, 10*time.Second, "all three vote", func() bool { return len(all[0].Status().Voters) == 3 })
	// All at once, as after a power cut: nobody knows where anybody is.
	id := all[0].Snapshot().Cluster
	for _, stop := range stops {
		stop()
	}
	for i := range all {
		all[i], _ = n.run(t, ident.NodeID{byte(i + 1)}, dirs[i], func(c *coordinator.Config) { c.Found, c.Locate = false, n.locate })
	}
	leading(t, all)
	for _, c := range all {
		eventually(t, patience, "it knows its cluster", func() bool { return c.Snapshot().Cluster == id })
	}
}

// locate finds a coordinator as gossip would.
func (n *net3) locate(of ident.NodeID) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.nodes[of]; c != nil {
		return c.Addr(), true
	}
	return "", false
}

func TestANodeOfAnotherClusterIsNotTakenIn(t *testing.T) {
	n := newNet()
	c, _ := n.run(t, ident.NodeID{1}, t.TempDir(), nil)
	eventually(t, patience, "it rules", func() bool {
		_, err := c.ServeJoin(t.Context(), cluster.Join{Node: ident.NodeID{2}, Raft: "127.0.0.1:1", Cluster: ident.ClusterID{9}, Last: 7})
		return fault.Is(err, fault.Invalid)
	})
	if _, err := c.ServeJoin(t.Context(), cluster.Join{Node: ident.NodeID{2}}); !fault.Is(err, fault.Invalid) {
		t.Error("one without an address was taken in", err)
	}
	if v := c.Status().Voters; len(v) != 1 {
		t.Errorf("%d voters", len(v))
	}
}

// What comes over the network may ask for nothing that this version knows.
func TestAChangeOfNoKnownKindIsRefusedAndHarmsNobody(t *testing.T) {
	n := newNet()
	c, _ := n.run(t, ident.NodeID{1}, t.TempDir(), nil)
	eventually(t, 5*time.Second, "it leads", func() bool { return c.Status().Leads })
	for _, change := range []cluster.Change{{}, {Delete: &cluster.Delete{Name: "x"}, Retire: &cluster.Retire{Node: ident.NodeID{7}}}} {
		if _, err := c.ServePropose(t.Context(), cluster.RequestID{1}, change); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", change, err)
		}
	}
	if _, err := c.Propose(t.Context(), cluster.Change{Register: &cluster.Register{Node: nodeOf(ident.NodeID{1})}}); err != nil {
		t.Error(err)
	}
}

// A voter that lost its log might vote for whoever lacks what it had confirmed: it
// comes in again as one that has nothing.
func TestAVoterWithoutItsLogStartsAnew(t *testing.T) {
	n := newNet()
	all := n.three(t)
	at := leading(t, all)
	id := ident.NodeID{byte((at+1)%3 + 1)}
	wiped := cluster.Join{Node: id, Raft: all[(at+1)%3].Addr(), Cluster: all[at].Snapshot().Cluster}
	n.cut(id)
	j, err := all[at].ServeJoin(t.Context(), wiped)
	if err != nil || j.Voter {
		t.Fatal(j, err)
	}
	if v := all[at].Status().Voters; len(v) != 2 || slices.Contains(v, id) {
		t.Fatalf("voters %v", v)
	}
	wiped.Last = 1 // far behind, for ever: it never votes
	for range 3 {
		if j, err := all[at].ServeJoin(t.Context(), wiped); err != nil || j.Voter {
			t.Fatal(j, err)
		}
	}
}

// A machine whose data folder was wiped comes as another node, at the same address.
func TestADeadCoordinatorsAddressGoesToItsHeir(t *testing.T) {
	n := newNet()
	stops := map[ident.NodeID]func(){}
	var all []*coordinator.Coordinator
	for i := byte(1); i <= 3; i++ {
		c, stop := n.run(t, ident.NodeID{i}, t.TempDir(), nil)
		all, stops[ident.NodeID{i}] = append(all, c), stop
	}
	eventually(t, 10*time.Second, "all three vote", func() bool { return len(all[0].Status().Voters) == 3 })
	old := ident.NodeID{3}
	where := all[2].Addr()
	heir := cluster.Join{Node: ident.NodeID{4}, Raft: where}
	if _, err := all[leading(t, all)].ServeJoin(t.Context(), heir); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Fatalf("the address of one that lives was given away: %v", err)
	}
	stops[old]()
	rest := all[:2]
	n.run(t, heir.Node, t.TempDir(), func(c *coordinator.Config) { c.Bind = where })
	eventually(t, 10*time.Second, "the heir votes in its place", func() bool {
		v := rest[leading(t, rest)].Status().Voters
		return len(v) == 3 && slices.Contains(v, heir.Node) && !slices.Contains(v, old)
	})
}
