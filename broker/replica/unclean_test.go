package replica

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Whoever an unclean election chose may have written more than is on its disk. A follower
// that has the same takes as much of it for committed as it knew before, and shows that to
// readers; so it hears nothing before a power cut can take none of it away.
func TestAnUncleanLeaderSaysWhatIsCommittedOnceThatIsOnItsDisk(t *testing.T) {
	other := ident.NodeID{2}
	from := cluster.Life{Node: other, Epoch: 1}
	for name, tt := range map[string]struct {
		unclean   ident.Epoch
		waits     bool // for its disk
		otherwise string
	}{
		"its election was unclean":          {4, true, "a follower agrees with what is not on the leader's disk"},
		"an earlier one was":                {2, true, "a follower agrees with what is not on the leader's disk"},
		"what is committed is what it was ": {0, false, "a follower waits for a disk that it need not wait for"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			r := leading(d, cluster.Fsync)
			r.Append(rpc.Append{Partition: ref, Batch: one(0)}, func(rpc.Appended) {})
			r.Order(Orders{View: replication.View{
				Epoch: 4, Version: 2, Leader: self, Replicas: []ident.NodeID{self, other}, ISR: []ident.NodeID{self}, MinInsync: 1, Unclean: tt.unclean,
			}})
			s := rpc.Standing{Partition: ref, Epoch: 4, End: record.At(1), Last: 3, Version: 2}
			if _, refused := r.Standing(from, s); (refused != nil) != tt.waits {
				t.Fatal(tt.otherwise)
			}
			d.sync(nil)
			if _, refused := r.Standing(from, s); refused != nil {
				t.Fatal("it is on the disk, and the follower is refused")
			}
		})
	}
}

// ahead is a log that was begun with the producers as of a place that it has not reached.
type ahead struct {
	disk
	did       []string
	forgotten func(error) // to be told that it is on the disk
	knows     ident.Offset
	during    func() // a restart
}

func (a *ahead) Forget(durable func(error)) error {
	a.did = append(a.did, "forget")
	a.knows = a.end.Offset
	a.forgotten = durable
	return nil
}

func (a *ahead) Restart(start record.Position, _ []byte, at ident.Offset) error {
	a.did = append(a.did, "restart")
	a.end, a.durable, a.knows = start, start, at
	if a.during != nil {
		a.during()
	}
	return nil
}

func (a *ahead) rebuild(partition.Rules) (*partition.Machine, error) {
	a.did = append(a.did, "rebuild")
	return partition.New(max(a.knows, a.end.Offset)), nil
}

func (a *ahead) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(a.did, want) {
		t.Fatalf("it did %q, not %q", a.did, want)
	}
	a.did = nil
}

func behind9(a *ahead) *Replica {
	a.end, a.durable, a.knows = record.At(5), record.At(5), 9
	return New(Config{
		Partition: ref, Topic: "orders", Self: self, Log: a, Machine: partition.New(9), Rebuild: a.rebuild, Outlet: alone{}, Lag: time.Second, Now: time.Now,
		Lease: func() bool { return true }, Alive: func(cluster.Life) bool { return true }, Logger: slog.New(slog.DiscardHandler),
	})
}

// A replica that was catching up may be all there is. What it was told of producers is of
// records that it never had: it forgets that before it leads, in its log as well, so that
// no restart brings it back.
func TestWhoWasCatchingUpForgetsItsProducersBeforeItLeads(t *testing.T) {
	a := &ahead{}
	r := behind9(a)
	lead := replication.View{Epoch: 4, Version: 2, Leader: self, Replicas: []ident.NodeID{self}, ISR: []ident.NodeID{self}, MinInsync: 1, Unclean: 4}
	rules := cluster.Settings{MaxMessageBytes: 1000, IdempotencyWindow: time.Minute}
	r.Order(Orders{View: lead, Range: ident.FullRange, Settings: rules})
	a.expect(t, "forget", "rebuild")
	var got answers
	got.append(r, "first", rpc.AcksAll, one(0))
	a.sync(nil)
	got.expect(t, "first: offset 5")
	lead.Version++
	r.Order(Orders{View: lead, Range: ident.FullRange, Settings: rules})
	a.expect(t)
}

// Nobody hears what its log is before the power can bring nothing back of what it forgot: it
// would drop that log then, though others count on it.
func TestWhoForgetsItsProducersIsHeardOnceThatIsOnItsDisk(t *testing.T) {
	a := &ahead{}
	r := behind9(a)
	other := ident.NodeID{2}
	both := []ident.NodeID{self, other}
	r.Order(Orders{View: replication.View{Epoch: 4, Version: 2, Leader: self, Replicas: both, ISR: []ident.NodeID{self}, MinInsync: 1, Unclean: 4}})
	ask := func() *rpc.Refused {
		_, refused := r.Standing(cluster.Life{Node: other, Epoch: 1}, rpc.Standing{Partition: ref, Epoch: 4, End: record.At(5), Version: 2})
		return refused
	}
	if ask() == nil {
		t.Error("it says what its log is, and has yet to forget")
	}
	a.forgotten(errors.New("input/output error"))
	if ask() == nil {
		t.Error("it says what its log is, and nobody can say whether it forgot")
	}
	a.forgotten(nil)
	if refused := ask(); refused != nil {
		t.Errorf("it has forgotten, and refuses: %+v", refused)
	}
}

// A follower that was catching up as an unclean election came begins anew with the new
// leader, whose producers are others. With what that one tells it then it goes on.
func TestWhoWasCatchingUpBeginsAnewAfterAnUncleanElection(t *testing.T) {
	a := &ahead{}
	r := behind9(a)
	leader := ident.NodeID{2}
	r.Order(Orders{View: replication.View{Epoch: 4, Version: 2, Leader: leader, Replicas: []ident.NodeID{self, leader}, ISR: []ident.NodeID{leader}, MinInsync: 1, Unclean: 3}})
	answered := func(d rpc.Divergence) {
		t.Helper()
		s, _ := r.Say(leader)
		if s == nil {
			t.Fatal("it does not say where it stands")
		}
		d.Partition, d.Epoch, d.Of, d.OfLast = ref, 4, s.End, s.Last
		if err := r.Diverged(d); err != nil {
			t.Fatal(err)
		}
	}
	answered(rpc.Divergence{Agreed: true})
	a.expect(t, "restart", "rebuild")
	answered(rpc.Divergence{Start: 7, End: record.At(7), ProducersAt: 9, Producers: []byte{}})
	a.expect(t, "restart", "rebuild")
	answered(rpc.Divergence{Agreed: true, Start: 7})
	a.expect(t)
	if _, h := r.Say(leader); h == nil {
		t.Fatal("both agree, and it does not say what it has")
	}
}

// The election may come while it begins anew.
func TestWhoIsChosenWhileItBeginsAnewForgetsItsProducers(t *testing.T) {
	a := &ahead{}
	r := behind9(a)
	leader := ident.NodeID{2}
	both := []ident.NodeID{self, leader}
	r.Order(Orders{View: replication.View{Epoch: 4, Version: 2, Leader: leader, Replicas: both, ISR: []ident.NodeID{leader}, MinInsync: 1}})
	a.during = func() {
		r.Order(Orders{View: replication.View{Epoch: 5, Version: 3, Leader: self, Replicas: both, ISR: []ident.NodeID{self}, MinInsync: 1, Unclean: 5}})
	}
	s, _ := r.Say(leader)
	if err := r.Diverged(rpc.Divergence{Partition: ref, Epoch: 4, Of: s.End, OfLast: s.Last, Start: 7, End: record.At(7), ProducersAt: 9, Producers: []byte{}}); err != nil {
		t.Fatal(err)
	}
	a.expect(t, "restart", "rebuild", "forget", "rebuild")
	if at, _ := r.Snapshot(); at != 7 || !r.Load().Leads {
		t.Fatalf("it knows producers as of %d: %+v", at, r.Load())
	}
}
