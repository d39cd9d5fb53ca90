package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// disk is a log whose fsync the test does.
type disk struct {
	batches []record.Batch
	queue   []waiting
	end     record.Position
	durable record.Position
	admit   error
	refuse  error
	damage  error
	start   ident.Offset
	time    int64
}

type waiting struct {
	next             record.Position
	written, durable func(error)
}

func (d *disk) Admit(int) error { return d.admit }
func (d *disk) Append(b record.Batch, written, durable func(error)) error {
	if d.refuse != nil {
		return d.refuse
	}
	d.batches = append(d.batches, b)
	d.end = d.end.After(b.Header())
	d.queue = append(d.queue, waiting{d.end, written, durable})
	return nil
}

func (d *disk) Read(from, limit ident.Offset, _ int) ([]byte, error) {
	if from < d.start {
		return nil, fault.New(fault.OffsetExpired, "gone")
	}
	var out []byte
	for _, b := range d.batches {
		if h := b.Header(); h.Next() > from && h.Base < limit {
			out = append(out, b...)
		}
	}
	return out, nil
}
func (d *disk) Start() ident.Offset                                { return d.start }
func (d *disk) StartPosition() record.Position                     { return record.At(d.start) }
func (d *disk) Committed() ident.Offset                            { return d.start }
func (d *disk) EndPosition() record.Position                       { return d.end }
func (d *disk) DurablePosition() record.Position                   { return d.durable }
func (d *disk) LastEpoch() ident.Epoch                             { return 0 }
func (d *disk) LastTimestamp() int64                               { return d.time }
func (d *disk) Bytes() int64                                       { return 0 }
func (d *disk) Damage() error                                      { return d.damage }
func (d *disk) OffsetAt(int64) (ident.Offset, error)               { return 99, nil }
func (d *disk) EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset) { return e, 99 }
func (d *disk) Retain(time.Time, record.Position) error            { return nil }

func (d *disk) Purge(ident.Offset, record.Position) error { return nil }

// What follows is of followers, which this disk has none of.
func (d *disk) EpochEndPosition(e ident.Epoch) (ident.Epoch, record.Position) { return e, d.end }
func (d *disk) ReadFrom(record.Position, int) ([]byte, error)                 { return nil, nil }
func (d *disk) TruncateTo(record.Position) error                              { return nil }
func (d *disk) Restart(record.Position, []byte, ident.Offset) error           { return nil }
func (d *disk) Forget(durable func(error)) error                              { durable(nil); return nil }
func (d *disk) SetStart(ident.Offset, ident.Offset) error                     { return nil }
func (d *disk) ProducersUpTo(ident.Offset) (ident.Offset, []byte, bool)       { return 0, nil, false }

// alone is the outlet of a replica without others.
type alone struct{}

func (alone) Push(ident.NodeID, ident.Partition) {}
func (alone) Tell(ident.NodeID, ident.Partition) {}
func (alone) Say(ident.NodeID, ident.Partition)  {}
func (alone) Propose(ident.Partition)            {}
func (alone) Heard(ident.NodeID) time.Time       { return time.Time{} }

// write tells that all that is queued is in the page cache.
func (d *disk) write() {
	for _, w := range d.queue {
		if w.written != nil {
			w.written(nil)
		}
	}
}

// sync ends the oldest append.
func (d *disk) sync(err error) {
	w := d.queue[0]
	d.queue = d.queue[1:]
	if err == nil {
		d.durable = w.next
	}
	w.durable(err)
}

var ref = ident.Partition{Topic: ident.TopicID{1}, Index: 0}

var self = ident.NodeID{1}

func leading(d *disk, durability cluster.Durability) *Replica {
	return leadingWhile(d, durability, func() bool { return true })
}

func leadingWhile(d *disk, durability cluster.Durability, lease func() bool) *Replica {
	r := New(Config{
		Partition: ref, Topic: "orders", Self: self, Log: d, Machine: partition.New(0), Outlet: alone{}, Lag: time.Second, Now: time.Now,
		Lease: lease, Alive: func(cluster.Life) bool { return true }, Logger: slog.New(slog.DiscardHandler),
	})
	r.Order(Orders{
		View:     replication.View{Epoch: 3, Version: 1, Leader: self, Replicas: []ident.NodeID{self}, ISR: []ident.NodeID{self}, MinInsync: 1},
		Range:    ident.FullRange,
		Settings: cluster.Settings{MaxMessageBytes: 1000, Durability: durability, IdempotencyWindow: time.Minute},
	})
	return r
}

func one(sequence int64) record.Batch {
	var b record.Builder
	b.Add(&record.Record{Value: []byte("v"), ContentType: "text/plain", Producer: ident.ProducerID{9}, Sequence: sequence})
	return b.Seal()
}

// answers gathers what was answered, in order.
type answers []string

func (a *answers) append(r *Replica, name string, acks rpc.Acks, b record.Batch) {
	r.Append(rpc.Append{Partition: ref, Batch: b, Acks: acks}, func(res rpc.Appended) {
		said := name + ": "
		if res.Err != nil {
			said += fault.KindOf(res.Err).Code()
		}
		for _, k := range res.Records {
			switch {
			case k.Err != nil:
				said += fault.KindOf(k.Err).Code()
			case k.Duplicate:
				said += fmt.Sprint("duplicate of ", k.Offset)
			default:
				said += fmt.Sprint("offset ", k.Offset)
			}
		}
		*a = append(*a, said)
	})
}

func (a *answers) expect(t *testing.T, want ...string) {
	t.Helper()
	if fmt.Sprint(*a) != fmt.Sprint(want) {
		t.Fatalf("answers %q, want %q", *a, want)
	}
	*a = nil
}

func TestNoAnswerPrecedesTheFsync(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "a", rpc.AcksAll, one(0))
	got.append(r, "b", rpc.AcksLeader, one(1))
	d.write()
	if b, _ := r.Bounds(); b.HW != 0 || b.Epoch != 3 {
		t.Fatalf("bounds %+v before the fsync", b)
	}
	got.expect(t)
	d.sync(nil)
	got.expect(t, "a: offset 0")
	if b, _ := r.Bounds(); b.HW != 1 {
		t.Fatalf("bounds %+v after it", b)
	}
	d.sync(nil)
	got.expect(t, "b: offset 1")
}

func TestARepeatIsAnsweredWithItsOriginal(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "first", rpc.AcksAll, one(0))
	got.append(r, "repeat", rpc.AcksAll, one(0))
	got.expect(t) // neither: the original is not on the disk yet
	d.sync(nil)
	got.expect(t, "first: offset 0", "repeat: duplicate of 0")
	got.append(r, "later", rpc.AcksAll, one(0))
	got.expect(t, "later: duplicate of 0")
	if len(d.batches) != 1 {
		t.Fatalf("%d batches", len(d.batches))
	}
}

// Another leader may have kept what is missing here.
func TestALeaderOfThePastDoesNotSayThatANumberWasSkipped(t *testing.T) {
	d, lease := &disk{}, true
	r := leadingWhile(d, cluster.Fsync, func() bool { return lease })
	var got answers
	got.append(r, "first", rpc.AcksAll, one(0))
	d.sync(nil)
	got.expect(t, "first: offset 0")
	stranger := func() record.Batch {
		var b record.Builder
		b.Add(&record.Record{Value: []byte("v"), ContentType: "text/plain", Producer: ident.ProducerID{8}, Sequence: 3})
		return b.Seal()
	}
	both := func() record.Batch {
		var b record.Builder
		for _, n := range []int64{0, 7} {
			b.Add(&record.Record{Value: []byte("v"), ContentType: "text/plain", Producer: ident.ProducerID{9}, Sequence: n})
		}
		return b.Seal()
	}
	for _, acks := range []rpc.Acks{rpc.AcksAll, rpc.AcksLeader} {
		lease = false
		got.append(r, "a gap", acks, one(5))
		got.append(r, "a stranger", acks, stranger())
		got.append(r, "a repeat", acks, one(0))
		got.append(r, "a repeat and a gap", acks, both())
		got.expect(t, "a gap: leader-unavailable", "a stranger: leader-unavailable", "a repeat: duplicate of 0", "a repeat and a gap: duplicate of 0leader-unavailable")
		lease = true
		got.append(r, "a gap", acks, one(5))
		got.append(r, "a stranger", acks, stranger())
		got.expect(t, "a gap: out-of-order-sequence", "a stranger: unknown-producer")
	}
}

func TestReplicatedTopicsAnswerFromThePageCacheButNotForAcksLeader(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Replicated)
	var got answers
	got.append(r, "all", rpc.AcksAll, one(0))
	got.append(r, "leader", rpc.AcksLeader, one(1))
	d.write()
	got.expect(t, "all: offset 0")
	if b, _ := r.Bounds(); b.HW != 2 {
		t.Fatalf("bounds %+v", b)
	}
	got.append(r, "repeat", rpc.AcksAll, one(0))
	got.expect(t, "repeat: duplicate of 0")
	d.sync(nil)
	d.sync(nil)
	got.expect(t, "leader: offset 1")
}

func TestAFailedDiskAnswersUnknownAndTakesNothingMore(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "a", rpc.AcksAll, one(0))
	got.append(r, "b", rpc.AcksAll, one(1))
	moved, err := r.Wait(0)
	if err != nil {
		t.Fatal(err)
	}
	d.sync(errors.New("input/output error"))
	d.sync(errors.New("input/output error"))
	got.expect(t, "a: unknown-outcome", "b: unknown-outcome")
	select {
	case <-moved:
	default:
		t.Fatal("a reader that waits must wake up")
	}
	got.append(r, "c", rpc.AcksAll, one(2))
	got.expect(t, "c: leader-unavailable")
}

func TestALogThatRefusesWhatItAdmittedEndsTheLead(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "a", rpc.AcksAll, one(0))
	d.refuse = fault.New(fault.LeaderUnavailable, "the journal was closed")
	got.append(r, "b", rpc.AcksAll, one(1))
	d.refuse = nil
	got.append(r, "c", rpc.AcksAll, one(2))
	d.sync(nil)
	got.expect(t, "a: unknown-outcome", "b: leader-unavailable", "c: leader-unavailable")
}

func TestRefusalsOfTheMomentLeaveTheSequenceAsItWas(t *testing.T) {
	d := &disk{admit: fault.New(fault.DiskFull, "no room")}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "full", rpc.AcksAll, one(0))
	d.admit = nil
	r.Append(rpc.Append{Partition: ref, Epoch: 2, Batch: one(0)}, func(res rpc.Appended) {
		if !fault.Is(res.Err, fault.Fenced) {
			t.Error(res.Err)
		}
	})
	bad := one(0)
	bad[len(bad)-1]++
	got.append(r, "damaged on the way", rpc.AcksAll, bad)
	got.append(r, "again", rpc.AcksAll, one(0))
	d.admit = fault.New(fault.DiskFull, "no room")
	got.append(r, "a repeat", rpc.AcksAll, one(0)) // answered with what it repeats, and needs no room
	got.append(r, "the next", rpc.AcksAll, one(1))
	got.expect(t, "full: disk-full", "damaged on the way: internal", "the next: disk-full")
	d.sync(nil)
	got.expect(t, "again: offset 0", "a repeat: duplicate of 0")
}

func TestReadersSeeWhatIsCommittedAndNothingElse(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "a", rpc.AcksAll, one(0))
	d.sync(nil)
	got.append(r, "b", rpc.AcksAll, one(1))
	read := func(o ident.Offset) (rpc.ReadResult, error) {
		return r.Read(t.Context(), rpc.Read{Partition: ref, Offset: o, MaxBytes: 1})
	}
	if res, err := read(0); err != nil || len(res.Batches) != len(d.batches[0]) || res.Bounds.HW != 1 {
		t.Fatalf("%d bytes, %+v, %v", len(res.Batches), res.Bounds, err)
	}
	if res, err := read(1); err != nil || len(res.Batches) != 0 {
		t.Fatalf("%d bytes at the high watermark, %v", len(res.Batches), err)
	}
	if _, err := read(2); !fault.Is(err, fault.OffsetNotFound) {
		t.Fatal(err)
	}
	d.start = 1
	if _, err := read(0); !fault.Is(err, fault.OffsetExpired) || fault.As(err).Fields["earliest"] != ident.Offset(1) {
		t.Fatal(err)
	}
	d.damage = fault.New(fault.LeaderUnavailable, "damaged; see tidewire log verify")
	if _, err := read(1); !fault.Is(err, fault.LeaderUnavailable) {
		t.Fatal("the end of a damaged log is no orderly end:", err)
	}
	if o, err := r.OffsetAt(5); o != 1 || err != nil {
		t.Fatal("an offset by time is never above the high watermark:", o, err)
	}
	r.Stop(fault.New(fault.TopicNotFound, "deleted"))
	if _, err := read(1); !fault.Is(err, fault.TopicNotFound) {
		t.Fatal(err)
	}
}

// A used-up number that was cut away would otherwise be known to whoever begins with that
// state, and is in no log.
func TestNoProducerStateIsKeptOfVoidsThatMayBeCutAway(t *testing.T) {
	d := &disk{}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "record", rpc.AcksAll, one(0))
	d.sync(nil)
	if at, state := r.Snapshot(); at != 1 || len(state) == 0 {
		t.Fatal(at, state)
	}
	var b record.Builder
	b.Void(ident.ProducerID{9}, 1)
	got.append(r, "void", rpc.AcksAll, b.Seal())
	if at, _ := r.Snapshot(); at != -1 {
		t.Fatal("a state as of", at, "knows of a void that is not committed")
	}
	d.sync(nil)
	if at, state := r.Snapshot(); at != 1 || len(state) == 0 {
		t.Fatal(at, state)
	}
}

// A replica may be moved away and back without hearing of it, while its leader hears of
// both and forgets that they agreed.
func TestAFollowerThatIsForgottenSaysAgainWhereItStands(t *testing.T) {
	for _, inSync := range []bool{false, true} {
		leader, now := ident.NodeID{2}, time.Unix(1000, 0)
		r := New(Config{
			Partition: ref, Topic: "orders", Self: self, Log: &disk{}, Machine: partition.New(0), Outlet: alone{}, Lag: time.Second,
			Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
		})
		v := replication.View{Epoch: 3, Version: 1, Leader: leader, Replicas: []ident.NodeID{leader, self}, ISR: []ident.NodeID{leader}, MinInsync: 1}
		if inSync {
			v.ISR = v.Replicas
		}
		r.Order(Orders{View: v, Range: ident.FullRange})
		s, _ := r.Say(leader)
		if s == nil {
			t.Fatal("it says nothing")
		}
		if err := r.Diverged(rpc.Divergence{Partition: ref, Epoch: 3, Agreed: true, Of: s.End, OfLast: s.Last}); err != nil {
			t.Fatal(err)
		}
		if _, held := r.Say(leader); held == nil {
			t.Fatal("it does not say what it has")
		}
		for range 9 {
			now = now.Add(TickEvery)
			r.Tick()
		}
		if s, held := r.Say(leader); s != nil || held != nil {
			t.Fatal("too early:", s, held)
		}
		if _, err := r.EpochEnd(3); !fault.Is(err, fault.LeaderUnavailable) {
			t.Fatal("a follower says where the epoch ends:", err)
		}
		now = now.Add(TickEvery)
		r.Tick()
		if s, _ := r.Say(leader); s == nil != inSync {
			t.Fatalf("in sync %t: it says %v", inSync, s)
		}
	}
}

// Neither a clock that was set back nor a machine that remembers nothing makes a leader
// append what does not follow its log.
func TestALeaderGoesOnWhereItsLogEnds(t *testing.T) {
	ahead := time.Now().Add(time.Hour).UnixMilli()
	d := &disk{time: ahead}
	r := leading(d, cluster.Fsync)
	var got answers
	got.append(r, "record", rpc.AcksAll, one(0))
	if len(d.batches) != 1 || d.batches[0].Header().Base != 0 || d.batches[0].Header().Timestamp != ahead {
		t.Errorf("%v", d.batches)
	}
}
