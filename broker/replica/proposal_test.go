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
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Who joins an ISR joins by the word of one life. A proposal that is open says so to its
// end: the next life may have lost what the former one had, and the coordinator, which
// knows that life for the latest, would take it.
func TestAProposalNamesTheLifeThatSpokeAndNoLaterOne(t *testing.T) {
	follower := ident.NodeID{2}
	former, next := cluster.Life{Node: follower, Epoch: 5}, cluster.Life{Node: follower, Epoch: 9}
	for name, then := range map[string]func(*Replica){
		"it is there still":       func(*Replica) {},
		"its stream ends":         func(r *Replica) { r.Lost(former) },
		"its next life begins":    func(r *Replica) { r.Lost(former); r.Standing(next, rpc.Standing{Partition: ref, Epoch: 3, Version: 2}) },
		"its next life stands so": func(r *Replica) { r.Standing(next, rpc.Standing{Partition: ref, Epoch: 3, Version: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := leading(&disk{}, cluster.Fsync)
			r.Order(Orders{View: replication.View{
				Epoch: 3, Version: 2, Leader: self, Replicas: []ident.NodeID{self, follower}, ISR: []ident.NodeID{self}, MinInsync: 1,
			}})
			if d, refused := r.Standing(former, rpc.Standing{Partition: ref, Epoch: 3, Version: 2}); refused != nil || !d.Agreed {
				t.Fatal(d, refused)
			}
			r.Held(former, rpc.Held{Partition: ref, Epoch: 3, Durable: record.At(0)})
			then(r)
			_, version, isr, ok := r.Proposal()
			if want := []cluster.Life{{Node: self}, former}; !ok || version != 2 || !slices.Equal(isr, want) {
				t.Fatalf("version %d: %v, %v; want %v", version, isr, ok, want)
			}
		})
	}
}

// A follower that is not in sync says where it stands at each version: its leader believes
// nothing that was said before.
func TestAFollowerSaysWhereItStandsAtEachVersion(t *testing.T) {
	leader := ident.NodeID{2}
	r := leading(&disk{}, cluster.Fsync)
	v := replication.View{Epoch: 4, Version: 2, Leader: leader, Replicas: []ident.NodeID{self, leader}, ISR: []ident.NodeID{leader}, MinInsync: 1}
	order := func(version uint64, isr ...ident.NodeID) {
		v.Version, v.ISR = version, isr
		r.Order(Orders{View: v})
	}
	agree := func(version uint64) {
		t.Helper()
		s, _ := r.Say(leader)
		if s == nil || s.Version != version {
			t.Fatalf("it says %+v, not where it stands at version %d", s, version)
		}
		if err := r.Diverged(rpc.Divergence{Partition: ref, Epoch: 4, Agreed: true, Of: s.End, OfLast: s.Last}); err != nil {
			t.Fatal(err)
		}
		if _, h := r.Say(leader); h == nil {
			t.Fatal("it does not say what it has")
		}
	}
	order(2, leader)
	agree(2)
	order(3, leader)
	agree(3)
	order(4, leader, self)
	if s, _ := r.Say(leader); s != nil {
		t.Fatalf("in sync, and it says %+v", s)
	}
	order(5, leader)
	agree(5)
}

// Damage may be found while a follower is away: then the leader's own copy is not one to be
// alone with.
func TestADamagedLeaderAsksForNoSmallerISR(t *testing.T) {
	other := cluster.Life{Node: ident.NodeID{2}, Epoch: 1}
	for _, damaged := range []bool{false, true} {
		d := &disk{}
		r := leading(d, cluster.Fsync)
		both := []ident.NodeID{self, other.Node}
		r.Order(Orders{View: replication.View{Epoch: 3, Version: 2, Leader: self, Replicas: both, ISR: both, MinInsync: 1}})
		r.Standing(other, rpc.Standing{Partition: ref, Epoch: 3, Version: 2})
		if damaged {
			d.damage = errors.New("a bit has flipped")
		}
		r.Lost(other)
		if _, _, isr, open := r.Proposal(); open == damaged {
			t.Errorf("damaged %v: it asks for %v: %v", damaged, isr, open)
		}
	}
}

// unread is a disk of which nothing can be read behind the first record.
type unread struct {
	disk
	why error
}

func (u *unread) ReadFrom(record.Position, int) ([]byte, error) { return nil, u.why }

// A follower that cannot be sent more because of damage has all that there is. One that
// cannot be for the moment has not.
func TestADamagedLeaderNamesWhoHasAllThatItCanGive(t *testing.T) {
	other := cluster.Life{Node: ident.NodeID{2}, Epoch: 6}
	for name, tt := range map[string]struct {
		why     *fault.Error
		damaged bool
		want    bool
	}{
		"what follows is damaged":                    {fault.New(fault.LeaderUnavailable, "a bit has flipped").Lasts(), true, true},
		"no file can be opened":                      {fault.New(fault.LeaderUnavailable, "too many open files"), false, false},
		"no file can be opened, and damage is found": {fault.New(fault.LeaderUnavailable, "too many open files"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			d := &unread{why: tt.why}
			r := New(Config{
				Partition: ref, Topic: "orders", Self: self, Log: d, Machine: partition.New(0), Outlet: alone{}, Lag: time.Second, Now: func() time.Time { return now },
				Lease: func() bool { return true }, Alive: func(cluster.Life) bool { return true }, Logger: slog.New(slog.DiscardHandler),
			})
			r.Order(Orders{
				View:  replication.View{Epoch: 3, Version: 7, Leader: self, Replicas: []ident.NodeID{self, other.Node}, ISR: []ident.NodeID{self}, MinInsync: 1},
				Range: ident.FullRange, Settings: cluster.Settings{MaxMessageBytes: 1000, IdempotencyWindow: time.Minute},
			})
			r.Append(rpc.Append{Partition: ref, Batch: one(0)}, func(rpc.Appended) {})
			d.sync(nil)
			if tt.damaged {
				d.damage = tt.why
			}
			r.Standing(other, rpc.Standing{Partition: ref, Epoch: 3, Version: 7})
			if _, err := r.Push(other.Node, 1000); err == nil {
				t.Fatal("it is sent what cannot be read")
			}
			now = now.Add(time.Second)
			switch version, who, ok := r.Successor(); {
			case ok != tt.want:
				t.Fatalf("named: %v", ok)
			case ok && (who != other || version != 7):
				t.Fatalf("%v on version %d", who, version)
			}
		})
	}
}
