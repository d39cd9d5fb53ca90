package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"tidewire/internal/ident"
)

// Config tunes a node. A zero field means its default.
type Config struct {
	Dir       string       // required: the data folder; raft's is made in it
	Bind      string       // host:port; port 0 picks one
	Advertise string       // what others dial; default: the address listened on
	ID        ident.NodeID // required; it must stay the same for as long as the folder lives
	// Found says that this may be the first run: nothing else in the data folder
	// depends on a coordinator's state. Without it a missing store is an error.
	Found    bool
	MinIndex uint64 // the highest index anyone is known to have acted on
	Machine  Machine
	Checks   Checks
	Logger   *slog.Logger

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
)

// Node is one member of the Raft group.
type Node struct {
	cfg     Config
	raft    *raft.Raft
	bolt    *raftboltdb.BoltStore
	store   *store
	stream  *stream
	trans   *raft.NetworkTransport
	changes chan bool // leadership won and lost; raft blocks when nobody reads

	failOnce sync.Once
	failure  error
	failed   chan struct{}

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
	return &Node{cfg: cfg, failed: make(chan struct{}), closed: make(chan struct{}), slots: make(chan struct{}, maxUnderWay)}
}

// Open verifies the folder, founds the cluster if this is the first run, and
// returns once this node leads and has applied everything. On an error nothing is
// left open.
func (n *Node) Open(ctx context.Context) error {
	if err := n.start(); err != nil {
		return errors.Join(err, n.Close())
	}
	if err := n.lead(ctx); err != nil {
		return errors.Join(err, n.Close())
	}
	return nil
}

func (n *Node) start() error {
	report, err := Verify(n.cfg.Dir, n.cfg.MinIndex, n.cfg.Checks)
	if err != nil {
		return err
	}
	if !report.Exists && !n.cfg.Found {
		return damaged(filepath.Join(n.cfg.Dir, folder), "the folder is missing, but the data folder was in use: a new cluster would not know its topics")
	}
	if report.Exists && !votes(report.Configuration, n.id()) {
		return fmt.Errorf("%s belongs to other coordinators than this node (%s): %v", filepath.Join(n.cfg.Dir, folder), n.cfg.ID, report.Configuration.Servers)
	}
	if n.stream, err = listen(n.cfg.Bind, n.cfg.Advertise); err != nil {
		return err
	}
	if !report.Exists {
		if err := n.found(); err != nil {
			return fmt.Errorf("found the cluster: %w", err)
		}
	}
	return n.run()
}

func (n *Node) id() raft.ServerID { return raft.ServerID(n.cfg.ID.String()) }

func (n *Node) root() string { return filepath.Join(n.cfg.Dir, folder) }

// run opens the folder, which has been verified, and starts raft on it.
func (n *Node) run() error {
	bolt, err := openBolt(filepath.Join(n.root(), dbFile))
	if err != nil {
		return err
	}
	n.bolt = bolt
	last, err := bolt.LastIndex()
	if err != nil {
		return err
	}
	m, err := openMark(n.root(), last)
	if err != nil {
		return err
	}
	n.store = newStore(bolt, m, n.fail)
	files, err := raft.NewFileSnapshotStoreWithLogger(n.root(), retained, newBridge(n.cfg.Logger))
	if err != nil {
		return err
	}
	n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, MaxPool: 3, Timeout: 10 * time.Second, Logger: newBridge(n.cfg.Logger),
	})
	n.changes = make(chan bool, 16)
	n.raft, err = raft.NewRaft(n.raftConfig(), &fsm{machine: n.cfg.Machine, fail: n.fail}, n.store, n.store,
		&snapshots{SnapshotStore: files, store: n.store}, n.trans)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	n.stream.raft.Store(n.raft)
	return nil
}

func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = n.id()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = startTimeout, startTimeout, leaseTimeout
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
			err := n.commit(ctx, func() raft.Future { return n.raft.Barrier(0) })
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

// Run watches over the node until ctx ends, then closes it. An error says that
// the store failed and the process must end.
func (n *Node) Run(ctx context.Context) error {
	if n.raft == nil {
		return errors.New("coordinator: Run before Open")
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return n.Close()
		case <-n.failed:
			return errors.Join(n.failure, n.Close())
		case leads := <-n.changes:
			n.cfg.Logger.Info("coordinator leadership changed", "leads", leads, "epoch", n.raft.CurrentTerm())
		case now := <-tick.C:
			if d := n.store.stalled(now); d > stallLimit {
				// Closing would wait for the same disk.
				return fmt.Errorf("the disk has not finished a write of the coordinator's log for %s", d.Round(time.Second))
			}
		}
	}
}

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
	close(n.closed)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
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
		if len(errs) == 0 {
			n.waits.Wait()
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

// found makes the folder with a log that names this node as the only voter.
func (n *Node) found() error {
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
	return raft.BootstrapCluster(n.raftConfig(), s, s, raft.NewDiscardSnapshotStore(), nil, raft.Configuration{
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
