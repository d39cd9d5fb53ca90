package rpc

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

var (
	group  = ident.GroupID{5}
	member = cluster.MemberLife{Group: group, Member: "m1", Epoch: 12}
	other  = ident.Partition{Topic: ident.TopicID{7}, Index: 4}
)

// groupsAt is a peer of a server whose broker is b.
func groupsAt(t testing.TB, b *broker) (*Peer, served) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	s.Broker(b)
	return toB(t, peersTo(t, s.Addr())), s
}

func TestTakesAndTheirLimits(t *testing.T) {
	var got Take
	answer := Taken{Of: []TakenOf{
		{Partition: topic, Batches: bytes.Repeat([]byte("b"), 1<<20), Leases: []Lease{{Offset: 0, Delivery: 1, Left: time.Second}, {Offset: 7, Delivery: 3, Left: -1}}},
		{Partition: other, Leases: []Lease{}, Err: fault.New(fault.Fenced, "another member has it").With("epoch", int64(9))},
	}, More: true}
	var failed error
	b := &broker{take: func(_ context.Context, t Take) (Taken, error) { got = t; return answer, failed }}
	r, _ := groupsAt(t, b)
	asked := Take{member, 44, []ident.Partition{topic, other}, 10, 1 << 20, time.Second, 7, 9, []uint64{8, 0}}
	taken, err := r.Take(t.Context(), asked)
	if err != nil || !reflect.DeepEqual(got, asked) {
		t.Fatalf("%v of %+v", err, got)
	}
	if f := fault.As(taken.Of[1].Err); f == nil || f.Kind != fault.Fenced || f.Fields["epoch"] != int64(9) {
		t.Errorf("%+v", taken.Of[1].Err)
	}
	if taken.Of[0].Batches = taken.Of[0].Batches[:1<<20]; !reflect.DeepEqual(taken.Of[0], answer.Of[0]) || taken.Of[1].Partition != other || !taken.More {
		t.Errorf("%+v", taken)
	}

	greedy := Take{MemberLife: member, Partitions: []ident.Partition{topic}, Limit: 1 << 30, MaxBytes: 1 << 30, Wait: time.Hour}
	if _, err := r.Take(t.Context(), greedy); err != nil || got.Limit != MaxTaken || got.MaxBytes != MaxSendBytes || got.Wait != MaxWait {
		t.Errorf("%v of %+v", err, got)
	}
	if _, err := r.Take(t.Context(), Take{Partitions: make([]ident.Partition, maxBounds+1)}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	answer = Taken{Of: []TakenOf{{Batches: make([]byte, MaxSendBytes)}, {Batches: make([]byte, 1)}}}
	if _, err := r.Take(t.Context(), asked); !fault.Is(err, fault.Internal) {
		t.Errorf("more than a message takes: %v", err)
	}
	failed = fault.New(fault.GroupNotFound, "no")
	if _, err := r.Take(t.Context(), asked); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
}

// A take that waits hears that its caller is gone, and that the server stops.
func TestTakesThatWaitAreEnded(t *testing.T) {
	waiting, ended := make(chan struct{}), make(chan error, 1)
	b := &broker{take: func(ctx context.Context, _ Take) (Taken, error) {
		waiting <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return Taken{}, context.Cause(ctx)
	}}
	r, s := groupsAt(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Take(ctx, Take{MemberLife: member, Wait: time.Minute}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
	})
	await(t, waiting)
	cancel()
	await(t, ended)
	wg.Wait()
	wg.Go(func() {
		if _, err := r.Take(t.Context(), Take{MemberLife: member, Wait: time.Minute}); !fault.Is(err, fault.Draining) {
			t.Error(err)
		}
	})
	await(t, waiting)
	s.stop()
	if err := await(t, ended); !errors.Is(err, errStopping) {
		t.Error(err)
	}
	wg.Wait()
}

func TestSettlesAndTheirLimits(t *testing.T) {
	var got Settle
	answer := Settled{Of: []SettledOf{
		{Partition: topic, Stale: []Stale{{0, fault.New(fault.Fenced, "leased to another")}, {8, fault.New(fault.OffsetNotFound, "not leased")}}, Extended: []Extended{{4, 29 * time.Second}}},
		{Partition: other, Stale: []Stale{}, Err: fault.New(fault.LeaderUnavailable, "elsewhere")},
	}}
	b := &broker{settle: func(_ context.Context, s Settle) (Settled, error) { got = s; return answer, nil }}
	r, _ := groupsAt(t, b)
	asked := Settle{member, 45, []SettleOf{
		{topic, []ident.Offset{0, 1}, -1, []Nack{{2, -1}, {3, time.Second}}, []ident.Offset{4}, []Reject{{5, "bad"}, {6, ""}}, 8},
		{Partition: other, Through: 0},
	}, 7, 9}
	settled, err := r.Settle(t.Context(), asked)
	if err != nil || !reflect.DeepEqual(got, asked) {
		t.Fatalf("%v of %+v", err, got)
	}
	if s := settled.Of[0]; !reflect.DeepEqual(s.Extended, answer.Of[0].Extended) {
		t.Errorf("%+v", s)
	}
	if s := settled.Of[0]; s.Partition != topic || s.Err != nil || len(s.Stale) != 2 || s.Stale[1].Offset != 8 || !fault.Is(s.Stale[0].Err, fault.Fenced) || !fault.Is(s.Stale[1].Err, fault.OffsetNotFound) {
		t.Errorf("%+v", s)
	}
	if s := settled.Of[1]; s.Partition != other || len(s.Stale) != 0 || !fault.Is(s.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", s)
	}
	for _, of := range []SettleOf{
		{Partition: topic, Ack: make([]ident.Offset, MaxSettled)},
		{Partition: topic, Reject: []Reject{{Reason: string(make([]byte, MaxReasonBytes+1))}}},
	} {
		if _, err := r.Settle(t.Context(), Settle{MemberLife: member, Of: []SettleOf{of}}); !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
	}
}

// What may have been taken is an unknown outcome, what cannot have been is not.
func TestABrokenSettle(t *testing.T) {
	waiting, release := make(chan struct{}), make(chan struct{})
	b := &broker{settle: func(context.Context, Settle) (Settled, error) {
		waiting <- struct{}{}
		<-release
		return Settled{}, nil
	}}
	r, s := groupsAt(t, b)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Settle(t.Context(), Settle{MemberLife: member}); !fault.Is(err, fault.UnknownOutcome) {
			t.Error(err)
		}
	})
	await(t, waiting)
	_ = r.live.Load().Close()
	wg.Wait()
	close(release)
	s.stop()
	if _, err := r.Settle(t.Context(), Settle{MemberLife: member}); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
}

func TestStandings(t *testing.T) {
	var got StandingsOf
	answer := []GroupStanding{
		{group, topic, 4, 90, 3, 80, time.UnixMilli(1234), 7, 2, 9, true},
		{Group: ident.GroupID{6}, Partition: other},
	}
	b := &broker{standings: func(s StandingsOf) ([]GroupStanding, error) { got = s; return answer, nil }}
	r, _ := groupsAt(t, b)
	asked := StandingsOf{46, []ident.GroupID{group, {6}}, []ident.Partition{topic, other}}
	if all, err := r.Standings(t.Context(), asked); err != nil || !reflect.DeepEqual(got, asked) || !reflect.DeepEqual(all, answer) {
		t.Errorf("%+v, %v of %+v", all, err, got)
	}
	many := StandingsOf{Groups: make([]ident.GroupID, MaxStandings/2+1), Partitions: make([]ident.Partition, 2)}
	if _, err := r.Standings(t.Context(), many); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

func TestRecordStatus(t *testing.T) {
	var got RecordStatusOf
	answer := []RecordStatus{{group, InFlight, "m1", time.Second, 2}, {Group: ident.GroupID{6}, State: Skipped}}
	b := &broker{status: func(s RecordStatusOf) ([]RecordStatus, error) {
		if got = s; s.Offset == 9 {
			return nil, fault.New(fault.OffsetNotFound, "no record there")
		}
		return answer, nil
	}}
	r, _ := groupsAt(t, b)
	asked := RecordStatusOf{47, topic, 8}
	if all, err := r.RecordStatus(t.Context(), asked); err != nil || got != asked || !reflect.DeepEqual(all, answer) {
		t.Errorf("%+v, %v of %+v", all, err, got)
	}
	if _, err := r.RecordStatus(t.Context(), RecordStatusOf{47, topic, 9}); !fault.Is(err, fault.OffsetNotFound) {
		t.Error(err)
	}
}

func TestTakeResponsesAreWhatTheirDefinitionSays(t *testing.T) {
	items := rapid.Custom(func(t *rapid.T) *tidewirepb.TakeResponse_Item {
		it := &tidewirepb.TakeResponse_Item{Partition: partitionMessage(partitions.Draw(t, "partition")), Batches: payloads.Draw(t, "batches")}
		for range rapid.IntRange(0, 3).Draw(t, "leases") {
			it.Leases = append(it.Leases, &tidewirepb.TakeResponse_Lease{
				Offset: rapid.Int64Min(0).Draw(t, "offset"), Delivery: rapid.Uint32().Draw(t, "delivery"), LeftNs: rapid.Int64().Draw(t, "left"),
			})
		}
		if rapid.Bool().Draw(t, "fails") {
			it.Problem = problemOf(fault.New(fault.Fenced, "old"))
		}
		return it
	})
	rapid.Check(t, func(t *rapid.T) {
		sent := &tidewirepb.TakeResponse{Items: rapid.SliceOfN(items, 0, 5).Draw(t, "items"), More: rapid.Bool().Draw(t, "more")}
		b, err := codec{}.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		got := &tidewirepb.TakeResponse{}
		generated(t, b.Materialize(), got)
		if !proto.Equal(sent, got) {
			t.Fatalf("%v\nbecame\n%v", sent, got)
		}
	})
}

func TestTakeResponsesReferToTheirBatches(t *testing.T) {
	batches := bytes.Repeat([]byte("b"), 100000)
	parts, err := codec{}.Marshal(&tidewirepb.TakeResponse{Items: []*tidewirepb.TakeResponse_Item{{Partition: partitionMessage(topic), Batches: batches}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if b := p.ReadOnlyData(); len(b) > 0 && &b[0] == &batches[0] {
			return
		}
	}
	t.Error("the batches were copied")
}
