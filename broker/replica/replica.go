package replica

import (
	"context"
	"sync"
	"time"

	"tidewire/broker/partition"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Log keeps the partition's batches.
type Log interface {
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
	// Read returns whole batches from the one that holds from, below limit.
	Read(from, limit ident.Offset, maxBytes int) ([]byte, error)
	Start() ident.Offset
	Durable() ident.Offset
	Bytes() int64
	Damage() error
	OffsetAt(ms int64) (ident.Offset, error)
	// EpochEnd gives the last epoch at or below e and where it ended.
	EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset)
	Retain(now time.Time, hw ident.Offset) error
}

// answer is who waits for a flight.
type answer struct {
	acks    rpc.Acks
	results []rpc.RecordResult
	done    func(rpc.Appended)
}

// flight is a batch on its way to the disk.
type flight struct {
	next    ident.Offset // the offset after it
	written bool
	answers []answer
}

// Replica is one partition on this node.
type Replica struct {
	ref   ident.Partition
	topic string
	log   Log

	mu         sync.Mutex
	machine    *partition.Machine
	rules      partition.Rules
	durability cluster.Durability
	epoch      ident.Epoch // 0: not leading
	stopped    error       // why it takes and gives nothing any more
	flights    []*flight   // oldest first
	hw         ident.Offset
	moved      chan struct{} // closed when hw moves or the replica stops; nil: nobody waits
}

// New makes a replica of a log whose state the machine holds. It leads nothing
// until Lead.
func New(ref ident.Partition, topic string, log Log, m *partition.Machine) *Replica {
	return &Replica{ref: ref, topic: topic, log: log, machine: m, hw: log.Durable()}
}

// Lead makes the replica the leader in an epoch, under the topic's settings.
// Epochs never fall.
func (r *Replica) Lead(epoch ident.Epoch, owned ident.HashRange, s cluster.Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = max(r.epoch, epoch)
	r.durability = s.Durability
	r.rules = partition.Rules{Range: owned, MaxMessageBytes: s.MaxMessageBytes, IdempotencyWindow: s.IdempotencyWindow}
}

// Stop ends the replica: nothing is taken or given from now on, and readers
// that wait wake up. What is under way is still answered by the log.
func (r *Replica) Stop(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopLocked(why)
}

func (r *Replica) stopLocked(why error) {
	r.stopped = why
	r.epoch = 0
	r.wakeLocked()
}

// Append takes a batch. done is called exactly once.
func (r *Replica) Append(req rpc.Append, done func(rpc.Appended)) {
	if now := r.append(req, done); now != nil {
		done(*now)
	}
}

// append returns the answer where there is one already.
func (r *Replica) append(req rpc.Append, done func(rpc.Appended)) *rpc.Appended {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped != nil:
		return refused(r.stopped)
	case r.epoch == 0:
		return refused(fault.New(fault.LeaderUnavailable, "this node does not lead partition %d of topic %q", r.ref.Index, r.topic))
	case req.Epoch != 0 && req.Epoch != r.epoch:
		return refused(fault.New(fault.Fenced, "the sender knows leader epoch %d, the partition is at %d", req.Epoch, r.epoch))
	}
	if err := req.Batch.VerifyBody(); err != nil {
		return refused(fault.New(fault.Internal, "a batch for partition %s: %w", r.ref, err))
	}
	if err := r.log.Admit(len(req.Batch)); err != nil {
		if results, ok := r.machine.Repeats(req.Batch); ok && !fault.Lasting(err) {
			return r.joinLocked(answer{req.Acks, results, done}) // what is kept is kept, however full the disk is
		}
		return refused(err)
	}
	plan, err := r.machine.Append(req.Batch, rpc.Clock(time.Now()), r.rules)
	if err != nil {
		return refused(err)
	}
	if plan.Batch == nil {
		return r.joinLocked(answer{req.Acks, plan.Results, done})
	}
	plan.Batch.Assign(record.Place{Partition: r.ref, Epoch: r.epoch, Base: plan.Base, Timestamp: plan.Timestamp})
	f := &flight{next: r.machine.End(), answers: []answer{{req.Acks, plan.Results, done}}}
	var written func(error)
	if r.durability == cluster.Replicated {
		written = func(err error) { r.wrote(f, err) }
	}
	if err := r.log.Append(plan.Batch, written, func(err error) { r.land(f, err) }); err != nil {
		// The machine is ahead of the log now, and there is no way back.
		r.stopLocked(err)
		return refused(err)
	}
	r.flights = append(r.flights, f)
	return nil
}

func refused(err error) *rpc.Appended { return &rpc.Appended{Err: err} }

// joinLocked answers a batch that leaves nothing to append: at once when all
// before it has landed, else with the newest flight.
func (r *Replica) joinLocked(a answer) *rpc.Appended {
	if n := len(r.flights); n > 0 {
		f := r.flights[n-1]
		if !(f.written && a.acks != rpc.AcksLeader) {
			f.answers = append(f.answers, a)
			return nil
		}
	}
	return &rpc.Appended{Records: a.results}
}

// wrote commits a flight of a topic that asks for no fsync.
func (r *Replica) wrote(f *flight, err error) {
	if err != nil {
		return // land will come with the same
	}
	r.mu.Lock()
	f.written = true
	r.commitLocked(f.next)
	var now, later []answer
	for _, a := range f.answers {
		if a.acks == rpc.AcksLeader {
			later = append(later, a)
		} else {
			now = append(now, a)
		}
	}
	f.answers = later
	r.mu.Unlock()
	for _, a := range now {
		a.done(rpc.Appended{Records: a.results})
	}
}

// land ends a flight: it is on disk, or the data folder has failed.
func (r *Replica) land(f *flight, err error) {
	r.mu.Lock()
	if err == nil {
		if r.flights[0] != f {
			panic("replica: flights land in the order in which they left")
		}
		r.flights[0] = nil
		r.flights = r.flights[1:]
		r.commitLocked(f.next)
		r.mu.Unlock()
		for _, a := range f.answers {
			a.done(rpc.Appended{Records: a.results})
		}
		return
	}
	r.stopLocked(fault.New(fault.LeaderUnavailable, "the data folder of this node has failed: %w", err))
	flights := r.flights
	r.flights = nil
	r.mu.Unlock()
	unknown := fault.New(fault.UnknownOutcome, "the disk failed while the record was being kept; it may or may not be there after the restart: %w", err)
	for _, f := range flights {
		for _, a := range f.answers {
			a.done(rpc.Appended{Err: unknown})
		}
	}
}

// commitLocked moves the high watermark, which never goes back.
func (r *Replica) commitLocked(hw ident.Offset) {
	if hw > r.hw {
		r.hw = hw
		r.wakeLocked()
	}
}

func (r *Replica) wakeLocked() {
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// Bounds of what can be read.
func (r *Replica) Bounds() (rpc.Bounds, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := rpc.Bounds{Start: r.log.Start(), HW: r.hw, Epoch: r.epoch}
	if r.stopped == nil && r.epoch == 0 {
		return b, fault.New(fault.LeaderUnavailable, "this node does not lead partition %d of topic %q", r.ref.Index, r.topic)
	}
	return b, r.stopped
}

// Wait returns a channel that is closed once the high watermark is above
// after, or the replica stops.
func (r *Replica) Wait(after ident.Offset) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped != nil {
		return nil, r.stopped
	}
	if r.hw > after {
		return closed(), nil
	}
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return r.moved, nil
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Read returns committed batches.
func (r *Replica) Read(_ context.Context, req rpc.Read) (rpc.ReadResult, error) {
	b, err := r.Bounds()
	out := rpc.ReadResult{Bounds: b}
	if err != nil {
		return out, err
	}
	switch {
	case req.Offset < b.Start:
		return out, Expired(r.topic, r.ref.Index, req.Offset, b)
	case req.Offset > b.HW:
		return out, fault.New(fault.OffsetNotFound, "partition %d of topic %q ends at offset %d; %d is above it", r.ref.Index, r.topic, b.HW, req.Offset).
			With("earliest", b.Start).With("end", b.HW)
	case req.Offset == b.HW:
		if err := r.log.Damage(); err != nil {
			return out, err // what follows is not "nothing"
		}
		return out, nil
	}
	out.Batches, err = r.log.Read(req.Offset, b.HW, req.MaxBytes)
	if fault.Is(err, fault.OffsetExpired) { // retention came in between
		out.Bounds.Start = r.log.Start()
		return out, Expired(r.topic, r.ref.Index, req.Offset, out.Bounds)
	}
	return out, err
}

// Expired is the error for an offset below the log start.
func Expired(topic string, p ident.Index, asked ident.Offset, b rpc.Bounds) error {
	return fault.New(fault.OffsetExpired, "offset %d of partition %d of topic %q is no longer kept; the earliest is %d", asked, p, topic, b.Start).
		With("partition", p).With("requested", asked).With("earliest", b.Start).With("end", b.HW)
}

// OffsetAt finds the first committed offset whose time is at or after ms; the
// high watermark where there is none.
func (r *Replica) OffsetAt(ms int64) (ident.Offset, error) {
	b, err := r.Bounds()
	if err != nil {
		return 0, err
	}
	o, err := r.log.OffsetAt(ms)
	return min(o, b.HW), err
}

// EpochEnd is where a leader epoch ended, the high watermark for the one that
// still goes on.
func (r *Replica) EpochEnd(e ident.Epoch) (ident.Offset, error) {
	b, err := r.Bounds()
	if err != nil {
		return 0, err
	}
	if e >= b.Epoch {
		return b.HW, nil
	}
	_, end := r.log.EpochEnd(e)
	return min(end, b.HW), nil
}

// Load is what the node reports of the partition.
func (r *Replica) Load() rpc.PartitionLoad {
	b, _ := r.Bounds() // a stopped replica still has its bounds
	return rpc.PartitionLoad{Partition: r.ref, Bounds: b, Bytes: r.log.Bytes()}
}

// Retain drops what the topic's retention no longer wants.
func (r *Replica) Retain(now time.Time) error {
	r.mu.Lock()
	hw, stopped := r.hw, r.stopped
	r.mu.Unlock()
	if stopped != nil {
		return nil
	}
	return r.log.Retain(now, hw)
}

// Snapshot is the producer state as of the log's end, for the log to keep.
func (r *Replica) Snapshot() (ident.Offset, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.End(), r.machine.Snapshot()
}
