package replica

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Log keeps the partition's batches.
type Log interface {
	replication.History
	// Admit says whether a batch of so many bytes may be appended now:
	// fault.DiskFull where the disk has no room, fault.LeaderUnavailable where
	// the log is damaged.
	Admit(bytes int) error
	// Append queues a placed batch. written (which may be nil) and durable are
	// called once each, in the order of the appends, when it is in the page
	// cache and when it is on disk; an error there means that the data folder
	// failed. An error that is returned means that the batch was not taken, and
	// that neither is called.
	Append(b record.Batch, written, durable func(error)) error
	// Read returns whole batches from the one that holds from, below limit,
	// those of voids alone left out.
	Read(from, limit ident.Offset, maxBytes int) ([]byte, error)
	// ReadFrom returns whole batches from a position to the log's end, all of them.
	ReadFrom(p record.Position, maxBytes int) ([]byte, error)
	Start() ident.Offset
	StartPosition() record.Position
	EndPosition() record.Position
	DurablePosition() record.Position
	LastEpoch() ident.Epoch
	LastTimestamp() int64 // of the last batch, ms since 1970
	Bytes() int64
	Damage() error
	OffsetAt(ms int64) (ident.Offset, error)
	// EpochEnd gives the last epoch at or below e and where it ended.
	EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset)
	// Retain drops what is over, nothing of it at or behind hw: not even batches of
	// voids at its offset, which a later leader may lack.
	Retain(now time.Time, hw record.Position) error
	// Purge is Retain for what lies below an offset. It may leave some of that.
	Purge(below ident.Offset, hw record.Position) error

	// TruncateTo cuts everything behind a position; it is durable then.
	TruncateTo(p record.Position) error
	// Restart drops everything: the log begins at start, which lies behind the voids
	// that went with what was before it, with the producer state as of at.
	Restart(start record.Position, producers []byte, at ident.Offset) error
	// Forget drops that state where the log has not grown past it. It does not wait for
	// the disk: durable is called once, when it is done for good, or with an error when
	// nobody can say any more. It is not called where Forget returns an error.
	Forget(durable func(error)) error
	// SetStart moves the log start up, at most to its end; hw is what is committed.
	SetStart(start, hw ident.Offset) error
	// Committed is how far the log was told to be committed, by Retain and SetStart, as
	// far as it keeps that through a restart. Of the producer states that it keeps,
	// one is always as of a place between its start and there: without it nobody could
	// begin anew from this log before more is committed, which may need just that.
	Committed() ident.Offset
	// ProducersUpTo is the newest producer state kept that is as of no more than hw.
	ProducersUpTo(hw ident.Offset) (at ident.Offset, state []byte, ok bool)
}

// Outlet carries what a replica has for others. Its methods note it down, and come back for
// it later, or at once: the replica's lock is free. They wait for nobody.
type Outlet interface {
	// Push: a follower is to get something (Replica.Push).
	Push(follower ident.NodeID, p ident.Partition)
	// Tell is Push for what can wait for the next push, or a moment: a high watermark
	// that nobody waits for at the follower.
	Tell(follower ident.NodeID, p ident.Partition)
	// Say: the leader is to hear something (Replica.Say).
	Say(leader ident.NodeID, p ident.Partition)
	// Propose: the ISR should be another (Replica.Proposal).
	Propose(p ident.Partition)
	// Heard is when a leader was heard last.
	Heard(leader ident.NodeID) time.Time
}

// Config of a replica. All of it is required.
type Config struct {
	Partition ident.Partition
	Topic     string
	Self      ident.NodeID
	Log       Log
	// Machine holds the state of the log, as far as it is there.
	Machine *partition.Machine
	// Rebuild makes the machine anew from the log, after a cut.
	Rebuild func(partition.Rules) (*partition.Machine, error)
	Outlet  Outlet
	// Lease says whether this node is sure to lead what the latest orders say it leads.
	Lease func() bool
	// Alive says whether a life is the one that the coordinator holds for alive.
	Alive  func(cluster.Life) bool
	Now    func() time.Time
	Lag    time.Duration // replica_lag
	Logger *slog.Logger
}

// Orders are what the coordinator wants of a replica.
type Orders struct {
	View     replication.View
	Range    ident.HashRange
	Settings cluster.Settings
	Floor    Floor
}

// Replica is one partition on this node.
type Replica struct {
	cfg Config
	ref ident.Partition
	log Log

	mu         sync.Mutex
	machine    *partition.Machine
	rules      partition.Rules
	durability cluster.Durability
	floor      Floor
	view       replication.View
	leader     *replication.Leader   // nil: it does not lead
	follower   *replication.Follower // nil: it does not follow

	disk     record.Position   // the end of what is on this node's disk
	own      record.Position   // and of what counts as kept here: the same, or what is written where no more was asked for
	cuts     int               // of the log, so far: news of appends before a cut say nothing of written
	cutting  bool              // a cut is under way, or the machine is made anew
	begun    ident.Epoch       // in which the log was begun anew with what its leader knew of producers; 0: in a former life
	deferred *replication.View // came meanwhile
	asked    time.Time         // when the leader was told where the log ends; zero: it is to be told
	told     record.Position   // what the leader was last told to be kept here
	watched  time.Time         // when somebody asked last to wait for the high watermark
	watch    bool              // the leader was last told that somebody does
	fed      time.Time         // when the leader last agreed or pushed
	refuses  bool              // the batches that it pushed last could not be taken
	hw       ident.Offset      // of readers: it never goes back
	serving  bool              // readers were last found to be served here
	halted   error             // it waits for somebody to look at it
	stopped  error             // why it takes and gives nothing any more

	quiet      atomic.Bool   // nothing comes of time passing
	all, local queue         // who waits for the high watermark, and for this node's disk
	forgets    bool          // what is told to be forgotten may be on the disk yet
	news       news          // what to tell once the lock is free
	moved      chan struct{} // closed when hw moves or the role changes; nil: nobody waits
}

// New makes a replica of a log whose state the machine holds. It does nothing until
// it has orders.
func New(cfg Config) *Replica {
	return &Replica{
		cfg: cfg, ref: cfg.Partition, log: cfg.Log, machine: cfg.Machine, disk: cfg.Log.DurablePosition(), own: cfg.Log.DurablePosition(),
		hw: max(cfg.Log.Start(), min(cfg.Log.Committed(), cfg.Log.EndPosition().Offset)),
	}
}

// Partition names what it is a replica of.
func (r *Replica) Partition() ident.Partition { return r.ref }

// Order takes in what the coordinator decided. Older orders than those in hand change
// nothing but the topic's settings.
func (r *Replica) Order(o Orders) {
	r.mu.Lock()
	r.durability, r.floor = o.Settings.Durability, o.Floor
	r.rules = partition.Rules{Range: o.Range, MaxMessageBytes: o.Settings.MaxMessageBytes, IdempotencyWindow: o.Settings.IdempotencyWindow}
	r.decide(o.View)
}

// decide takes in what the coordinator decided, now or once the cut under way is done. The
// lock is held, and free afterwards.
func (r *Replica) decide(v replication.View) {
	switch {
	case r.stopped != nil:
	case r.cutting:
		r.deferred = &v
	case v.Leader == r.cfg.Self && v.Newer(&r.view) && r.halted == nil && r.log.EndPosition().Offset < r.machine.End():
		r.cutting, r.deferred = true, &v
		rules := r.rules
		r.unlock()
		r.forget(rules)
		return
	default:
		r.orderLocked(v)
	}
	r.unlock()
}

// forget makes a replica fit to lead whose machine is as of a place that its log has not
// reached: it had only begun anew when an unclean election chose it. What the machine knows
// is of records that are lost then.
func (r *Replica) forget(rules partition.Rules) {
	r.cfg.Logger.Warn("an unclean election chose a replica that was still catching up: what it was told of producers is forgotten",
		"topic", r.cfg.Topic, "partition", r.ref.Index, "offset", r.log.EndPosition().Offset)
	r.mu.Lock()
	r.forgets = true
	r.mu.Unlock()
	err := r.log.Forget(r.forgot)
	var machine *partition.Machine
	if err == nil {
		machine, err = r.cfg.Rebuild(rules)
	}
	if end := r.log.EndPosition().Offset; err == nil && end < machine.End() {
		err = fmt.Errorf("the log ends at offset %d, and what it says of producers is as of %d", end, machine.End())
	}
	if err != nil {
		r.cfg.Logger.Error("a replica stops: it cannot forget what its log does not say", "topic", r.cfg.Topic, "partition", r.ref.Index, "err", err)
	}
	r.mu.Lock()
	r.remade(machine, err)
}

// forgot notes that what was to be forgotten is gone from the disk. After an error it may
// come back, and the disk failed: this replica tells nobody any more what its log is.
func (r *Replica) forgot(err error) {
	r.mu.Lock()
	r.forgets = err != nil
	r.mu.Unlock()
}

// remade goes on after the log was cut, or could not be, with the machine that it says now.
// The lock is held, and free afterwards.
func (r *Replica) remade(machine *partition.Machine, err error) {
	v := r.deferred
	r.cutting, r.deferred = false, nil
	switch {
	case err != nil:
		// What cannot be cut is not the leader's log: it takes nothing more.
		r.halted = err
	case v != nil:
		r.machine = machine
		r.decide(*v)
		return
	default:
		r.machine = machine
	}
	r.unlock()
}

func (r *Replica) orderLocked(v replication.View) {
	if r.view.Version != 0 && !v.Newer(&r.view) {
		return
	}
	now, newEpoch := r.cfg.Now(), v.Epoch != r.view.Epoch
	r.view = v
	if newEpoch {
		r.serving = false
	}
	switch {
	case r.halted != nil:
		r.stepDownLocked()
		r.follower = nil
	case v.Leader == r.cfg.Self && (newEpoch || r.leader == nil):
		r.stepDownLocked()
		r.follower = nil
		r.machine.NotBefore(r.log.LastTimestamp()) // what is remembered does not say the time where it is nothing
		r.leader = replication.Lead(r.cfg.Self, v, r.log.EndPosition(), r.own, r.hw, r.cfg.Lag, now)
		r.settleLocked()
		r.wakeLocked()
	case v.Leader == r.cfg.Self:
		r.leader.See(v, now)
		r.settleLocked()
	case newEpoch || r.follower == nil:
		r.stepDownLocked()
		r.follower = replication.FollowView(v)
		r.asked = time.Time{}
		r.news.say = true
		r.wakeLocked()
	default:
		r.follower.See(v)
		if !v.InSync(r.cfg.Self) { // what it said before counts no more
			r.partLocked()
			r.asked = time.Time{}
			r.news.say = true
		}
	}
}

// stepDownLocked ends a leadership. What is not committed may be, under the next
// leader, and may not: nobody here can tell.
func (r *Replica) stepDownLocked() {
	if r.leader == nil {
		return
	}
	r.leader = nil
	r.failLocked(fault.New(fault.UnknownOutcome, "the leadership of partition %d of topic %q moved while the record was being kept; repeat it with the same sequence or Idempotency-Key", r.ref.Index, r.cfg.Topic))
}

func (r *Replica) failLocked(err error) {
	r.news.fail(&r.all, err)
	r.news.fail(&r.local, err)
}

// Stop ends the replica: nothing is taken or given from now on, and readers
// that wait wake up.
func (r *Replica) Stop(why error) {
	r.mu.Lock()
	defer r.unlock()
	r.stopLocked(why, fault.New(fault.UnknownOutcome, "the partition was taken from this node while the record was being kept: %w", why))
}

// stopLocked ends everything; pending is the answer to who waits.
func (r *Replica) stopLocked(why, pending error) {
	r.stopped = why
	r.leader, r.follower = nil, nil
	r.failLocked(pending)
	r.wakeLocked()
}

// durableNow is told by the log that more is on the disk, or that nothing will be.
func (r *Replica) durableNow(err error) {
	r.mu.Lock()
	defer r.unlock()
	switch {
	case err == nil:
		r.disk = r.log.DurablePosition()
		if r.keptLocked(r.disk); len(r.local.waiting) > 0 && r.leader != nil {
			r.settleLocked() // what was written long ago is on the disk now
		}
	case r.stopped == nil:
		r.stopLocked(fault.New(fault.LeaderUnavailable, "the data folder of this node has failed: %w", err),
			fault.New(fault.UnknownOutcome, "the disk failed while the record was being kept; it may or may not be there after the restart: %w", err))
	}
}

// writtenUpTo makes what the log calls when a batch is in the page cache, for a topic
// that asks for no more; nil for others.
func (r *Replica) writtenUpTo(end record.Position) func(error) {
	if r.durability != cluster.Replicated {
		return nil
	}
	cuts := r.cuts
	return func(err error) {
		if err != nil {
			return // durable comes with the same
		}
		r.mu.Lock()
		defer r.unlock()
		if r.cuts == cuts {
			r.keptLocked(end)
		}
	}
}

// keptLocked notes what counts as kept on this node.
func (r *Replica) keptLocked(to record.Position) {
	if !r.own.Before(to) {
		return
	}
	r.own = to
	switch {
	case r.leader != nil:
		r.leader.Synced(to)
		r.settleLocked()
	case r.follower != nil && r.follower.Agreed():
		r.news.say = true
	}
}

// Halted says why a replica waits for somebody to look at it; nil: it does not.
func (r *Replica) Halted() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.halted
}

func (r *Replica) notLed() error {
	return fault.New(fault.LeaderUnavailable, "this node does not lead partition %d of topic %q", r.ref.Index, r.cfg.Topic)
}

func (r *Replica) String() string { return fmt.Sprintf("%s (%s)", r.ref, r.cfg.Topic) }
