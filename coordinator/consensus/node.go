package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"tidewire/internal/ident"
)

// Config tunes a node. A zero field means its default.
type Config struct {
	Dir       string       // required: the data folder; raft's is made in it
	Bind      string       // host:port; port 0 picks one
	Advertise string       // what others dial; default: the address listened on
	ID        ident.NodeID // required; it must stay the same for as long as the folder lives
	// Found says that this may be the first run: nothing else in the data folder
	// depends on a coordinator's state, or with Join, what does is of the cluster that
	// it joins. Without it a missing store is an error.
	Found bool
	// Join says that this node never founds: without a store it makes an empty
	// one and waits until a cluster's leader takes it in.
	Join     bool
	MinIndex uint64 // the highest index anyone is known to have acted on
	Machine  Machine
	Checks   Checks
	Logger   *slog.Logger

	// Cluster is the one this node belongs to, as far as it knows; zero: not yet,
	// and nobody is heard. Default: never known.
	Cluster func() ident.ClusterID
	// Dial opens connections to other coordinators. Default: plain TCP.
	Dial Dial
	// Locate finds where a coordinator's raft is now; false: not known, the
	// configuration's address counts.
	Locate func(ident.NodeID) (address string, ok bool)

	SnapshotAfter uint64 // entries between snapshots; 2048
	TrailingLogs  uint64 // entries kept behind a snapshot for followers; 8192
}

// The timeouts of a cluster (heartbeat, election) and of the leader's lease. A
// lone node starts with the long ones and lowers them at once: raft then sees
// its heartbeat overdue and starts the election in that moment, where it would
// otherwise wait for the timeout.
const (
	startTimeout   = 1100 * time.Millisecond
	clusterTimeout = 300 * time.Millisecond
	leaseTimeout   = 150 * time.Millisecond
	// transportTimeout bounds a dial and a call, where nothing comes back any more.
	transportTimeout = 2 * time.Second

	// stallLimit ends a node whose disk has not answered for this long. raft does
	// not notice: its heartbeats go on beside the stalled write.
	stallLimit = 30 * time.Second
	// shutdownLimit bounds each step of Close.
	shutdownLimit = 5 * time.Second
	// maxUnderWay bounds the commands handed to raft, which writes those that came
	// meanwhile with one fsync. More of them wait in their callers.
	maxUnderWay = 32
	// reserveBytes are kept free for raft's own needs: a command is refused before
	// it takes the last room, from which terms and votes are saved.
	reserveBytes = 4 << 20
	// aheadBytes of raft.db are taken from the disk before they are written: what a
	// cluster decides in a day or so. A disk that others have filled leaves its node a
	// coordinator that way.
	aheadBytes = 8 << 20
)

// Node is one member of the Raft group.
type Node struct {
	cfg     Config
	raft    *raft.Raft
	bolt    *raftboltdb.BoltStore
	store   *store
	stream  *stream
	trans   *patient
	changes chan bool // leadership won and lost; raft blocks when nobody reads
	leads   chan bool // the latest of them, for who acts on it

	wrap func(backing) backing // tests make the disk hang with it; nil: as it is

	full     atomic.Bool // a command was refused for want of space
	failOnce sync.Once
	failure  error
	failed   chan struct{}

	reach    reach
	changing chan struct{} // held while the configuration is changed
	slots    chan struct{} // holds a token for each command under way
	waits    sync.WaitGroup
	closed   chan struct{} // closed when Close begins
	closing  sync.Once
	closeErr error
}

// New only keeps the configuration.
func New(cfg Config) *Node {
	cfg.SnapshotAfter = cmp.Or(cfg.SnapshotAfter, 2048)
	cfg.TrailingLogs = cmp.Or(cfg.TrailingLogs, 8192)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Cluster == nil {
		cfg.Cluster = func() ident.ClusterID { return ident.ClusterID{} }
	}
	if cfg.Locate == nil {
		cfg.Locate = func(ident.NodeID) (string, bool) { return "", false }
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return &Node{
		cfg: cfg, failed: make(chan struct{}), closed: make(chan struct{}), leads: make(chan bool, 1),
		slots: make(chan struct{}, maxUnderWay), changing: make(chan struct{}, 1),
	}
}

// Open verifies the folder, founds the cluster if this is the first run, and starts
// raft. A node that has the only vote leads and has applied everything when it
// returns; another one may still be waiting for the others. On an error nothing is
// left open.
func (n *Node) Open(ctx context.Context) error {
	lone, err := n.start()
	if err == nil && lone {
		err = n.lead(ctx)
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	return nil
}

// start says whether this node has the only vote.
func (n *Node) start() (lone bool, err error) {
	least := n.cfg.MinIndex
	if _, err := os.Lstat(n.root()); n.cfg.Join && n.cfg.Found && errors.Is(err, fs.ErrNotExist) {
		least = 0 // what it has acted on it learned from the cluster that it joins
	}
	report, err := Verify(n.cfg.Dir, least, n.cfg.Checks)
	if err != nil {
		return false, err
	}
	if !report.Exists && !n.cfg.Found {
		return false, damaged(n.root(), "the folder is missing, but the data folder was in use: a new cluster would not know its topics")
	}
	if report.Exists && !report.belongs(n.cfg.ID) {
		return false, fmt.Errorf("%s belongs to other coordinators than this node (%s): %v", n.root(), n.cfg.ID, report.Configuration.Servers)
	}
	if n.stream, err = listen(&n.cfg); err != nil {
		return false, err
	}
	if !report.Exists {
		if err := n.make(); err != nil {
			return false, fmt.Errorf("make the coordinator's store: %w", err)
		}
		return !n.cfg.Join, n.run(!n.cfg.Join, report)
	}
	lone = onlyVote(report.Configuration, n.id())
	return lone, n.run(lone, report)
}

// onlyVote says whether nobody else has a vote.
func onlyVote(c raft.Configuration, id raft.ServerID) bool {
	votes := 0
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			if s.ID != id {
				return false
			}
			votes++
		}
	}
	return votes == 1
}

func (n *Node) id() raft.ServerID { return raft.ServerID(n.cfg.ID.String()) }

func (n *Node) root() string { return filepath.Join(n.cfg.Dir, folder) }

// run opens the folder, which has been verified, and starts raft on it.
func (n *Node) run(lone bool, report Report) error {
	file := filepath.Join(n.root(), dbFile)
	bolt, err := openBolt(file)
	if err != nil {
		return err
	}
	n.bolt = bolt
	n.takeAhead(file)
	last, err := bolt.LastIndex()
	if err != nil {
		return err
	}
	m, err := openMark(n.root(), last)
	if err != nil {
		return err
	}
	var under backing = bolt
	if n.wrap != nil {
		under = n.wrap(bolt)
	}
	n.store = newStore(under, m, n.fail)
	if err := n.store.finishInstall(report); err != nil {
		return err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(n.root(), retained, newBridge(n.cfg.Logger))
	if err != nil {
		return err
	}
	n.trans = newPatient(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, ServerAddressProvider: n.stream, MaxPool: 3, Timeout: transportTimeout, Logger: newBridge(n.cfg.Logger),
	}), n.stream.raft.Load, n.store, n.closed)
	n.changes = make(chan bool, 16)
	n.raft, err = raft.NewRaft(n.raftConfig(lone), &fsm{machine: n.cfg.Machine, fail: n.fail}, n.store, n.store,
		&snapshots{SnapshotStore: files, store: n.store}, n.trans)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.reach.take))
	n.stream.raft.Store(n.raft)
	return nil
}

func (n *Node) raftConfig(lone bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = n.id()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = clusterTimeout, clusterTimeout, leaseTimeout
	if lone {
		c.HeartbeatTimeout, c.ElectionTimeout = startTimeout, startTimeout
	}
	c.SnapshotThreshold, c.TrailingLogs = n.cfg.SnapshotAfter, n.cfg.TrailingLogs
	c.SnapshotInterval = 30 * time.Second
	c.Logger = newBridge(n.cfg.Logger)
	c.NotifyCh = n.changes
	c.NoLegacyTelemetry = true
	return c
}

func openBolt(path string) (*raftboltdb.BoltStore, error) {
	b, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		Timeout:        time.Second, // else it waits for another process for ever
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	}})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return b, nil
}

// takeAhead lets the store have room of its own while there is some.
func (n *Node) takeAhead(file string) {
	if free, err := n.free(); err != nil || free < aheadBytes+reserveBytes {
		return
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, aheadBytes), f.Close())
	}
	if err != nil { // the file system may have no such thing
		n.cfg.Logger.Debug("the coordinator's store has no room of its own", "err", err)
	}
}

// lead waits until this node leads and everything in the log is applied.
func (n *Node) lead(ctx context.Context) error {
	if err := n.raft.ReloadConfig(raft.ReloadableConfig{
		TrailingLogs: n.cfg.TrailingLogs, SnapshotInterval: 30 * time.Second, SnapshotThreshold: n.cfg.SnapshotAfter,
		HeartbeatTimeout: clusterTimeout, ElectionTimeout: clusterTimeout,
	}); err != nil {
		return fmt.Errorf("lower raft's timeouts: %w", err)
	}
	for {
		select {
		case leads := <-n.changes:
			if !leads {
				continue
			}
			err := n.Barrier(ctx)
			if errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrNotLeader) {
				continue
			}
			select {
			case <-n.failed: // it applied everything but what it could not
				return n.failure
			default:
				return err
			}
		case <-n.failed:
			return n.failure
		case <-ctx.Done():
			return fmt.Errorf("wait for leadership: %w", context.Cause(ctx))
		}
	}
}

// ErrRemoved says that the cluster goes on without this coordinator.
var ErrRemoved = errors.New("this node was taken out of the cluster's coordinators; start it again to join them anew")

// Run watches over the node until ctx ends, then hands over what it leads and closes
// it. An error says that the store failed, or ErrRemoved: the process must end.
func (n *Node) Run(ctx context.Context) error {
	if n.raft == nil {
		return errors.New("coordinator: Run before Open")
	}
	n.tell(n.raft.State() == raft.Leader)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	member, outside, lacks := false, time.Time{}, false
	for {
		select {
		case <-ctx.Done():
			return n.Close()
		case <-n.failed:
			return errors.Join(n.failure, n.Close())
		case leads := <-n.changes:
			n.cfg.Logger.Info("coordinator leadership changed", "leads", leads, "epoch", n.raft.CurrentTerm())
			n.tell(leads)
		case now := <-tick.C:
			if l := n.store.lacks(now) > 0; l != lacks {
				lacks = l
				n.cfg.Logger.Warn("a full disk keeps the coordinator from taking part", "full", lacks)
			}
			switch d := n.store.stalled(now); {
			case d > stallLimit:
				// Closing would wait for the same disk.
				return fmt.Errorf("the disk has not finished a write of the coordinator's log for %s", d.Round(time.Second))
			case n.full.Swap(false):
				if err := n.HandOver(ctx); err != nil {
					n.cfg.Logger.Warn("the coordinator's disk is full, and nobody else takes over", "err", err)
				}
			}
			if has(n.raft.GetConfiguration().Configuration(), n.id()) {
				member, outside = true, time.Time{}
			} else if member && outside.IsZero() {
				outside = now
			}
			// Not at once: an entry that says so may still be withdrawn.
			if n.raft.State() == raft.Shutdown || !outside.IsZero() && now.Sub(outside) > removedAfter {
				return errors.Join(ErrRemoved, n.Close())
			}
		}
	}
}

const (
	watchEvery   = 250 * time.Millisecond
	removedAfter = 2 * time.Second
)

func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.failure = err
		close(n.failed)
	})
}

// Addr is the address others dial, with the port that was picked.
func (n *Node) Addr() string {
	if n.stream == nil {
		return n.cfg.Bind
	}
	return n.stream.advertise
}

// Close stops in reverse order of start. It may be called more than once.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	n.bow(ctx)
	close(n.closed)
	for range maxUnderWay { // let the commands under way end; no other starts
		select {
		case n.slots <- struct{}{}:
			continue
		case <-ctx.Done():
		}
		errs = append(errs, errors.New("stop the coordinator: a command did not end"))
		break
	}
	if n.trans != nil {
		errs = append(errs, n.trans.Close()) // closes the listener
	} else if n.stream != nil {
		errs = append(errs, n.stream.Close())
	}
	if n.store != nil {
		n.store.stop()
	}
	if n.raft != nil {
		if err := n.await(ctx, n.raft.Shutdown()); err != nil {
			// raft still holds the store: leave it to the end of the process.
			return errors.Join(append(errs, fmt.Errorf("stop raft: %w", err))...)
		}
		n.trans.close()
		if len(errs) == 0 {
			errs = append(errs, n.waited(ctx))
		}
	}
	if n.store != nil {
		errs = append(errs, n.store.mark.close())
	}
	if n.bolt != nil {
		errs = append(errs, n.bolt.Close())
	}
	return errors.Join(errs...)
}

// bow hands over what this node leads, where it still can.
func (n *Node) bow(ctx context.Context) {
	select {
	case <-n.failed:
		return
	default:
	}
	if n.raft == nil {
		return
	}
	if err := n.HandOver(ctx); err != nil {
		n.cfg.Logger.Info("the other coordinators elect a leader by themselves", "err", err)
	}
}

// waited waits for whoever waits for raft. It does not answer everybody when it ends.
func (n *Node) waited(ctx context.Context) error {
	all := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { n.waits.Wait(); close(all) })
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return errors.New("stop the coordinator: raft did not answer all calls")
	}
}

// make makes the folder, in one step: with a log that names this node as the only
// voter, or empty for a node that joins.
func (n *Node) make() error {
	if err := os.MkdirAll(n.cfg.Dir, 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(n.cfg.Dir, foundingFolder)
	if err := os.RemoveAll(tmp); err != nil { // of a run that did not get to the rename
		return err
	}
	if err := os.MkdirAll(filepath.Join(tmp, snapshotFolder), 0o755); err != nil {
		return err
	}
	if err := n.bootstrap(tmp); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(tmp, snapshotFolder), tmp} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, n.root()); err != nil {
		return err
	}
	return syncDir(n.cfg.Dir)
}

func (n *Node) bootstrap(dir string) (err error) {
	bolt, err := openBolt(filepath.Join(dir, dbFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	m, err := openMark(dir, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	s := newStore(bolt, m, func(error) {}) // its error comes back from the call as well
	if err := s.Set([]byte(keyOwner), n.cfg.ID[:]); err != nil {
		return err
	}
	if n.cfg.Join {
		return s.SetUint64([]byte(keyJoined), 1)
	}
	return raft.BootstrapCluster(n.raftConfig(true), s, s, raft.NewDiscardSnapshotStore(), nil, raft.Configuration{
		Servers: []raft.Server{{ID: n.id(), Address: raft.ServerAddress(n.stream.advertise), Suffrage: raft.Voter}},
	})
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
