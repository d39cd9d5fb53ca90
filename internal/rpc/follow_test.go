package rpc

import (
	"bytes"
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/record"
)

var asFollower = Follow{Follower: cluster.Life{Node: nodeA, Epoch: 2}, Leader: cluster.Life{Node: nodeB, Epoch: 4}}

func TestFollowing(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	up := FromFollower{Standings: []Standing{{Partition: topic, Epoch: 3, End: record.Position{Offset: 4, Voids: 1}, Last: 2}}}
	down := FromLeader{Pushes: []Push{{Partition: topic, Epoch: 3, HW: 9, Batches: bytes.Repeat([]byte("x"), 300<<10)}}, Refused: []Refused{{topic, 4}}}
	ended := make(chan error, 1)
	s.Broker(&broker{follow: func(_ context.Context, f Follow, st FollowerStream) error {
		if f != asFollower {
			t.Errorf("opened with %+v", f)
		}
		var m FromFollower
		for {
			if err := st.Recv(&m); err != nil {
				ended <- err
				return err
			}
			if !reflect.DeepEqual(m, up) {
				t.Errorf("%+v came", m)
			}
			if err := st.Send(&down); err != nil {
				t.Error(err)
			}
			if err := st.Send(&FromLeader{}); err != nil {
				t.Error(err)
			}
		}
	}})
	r := toB(t, peersTo(t, s.Addr()))
	f, err := r.Follow(t.Context(), asFollower)
	if err != nil {
		t.Fatal(err)
	}
	var m FromLeader
	var first []byte
	for range 3 {
		if err := f.Send(&FromFollower{Standings: up.Standings, Held: []Held{}}); err != nil {
			t.Fatal(err)
		}
		if err := f.Recv(&m); err != nil || len(m.Pushes) != 1 || !reflect.DeepEqual(m.Pushes, down.Pushes) || !reflect.DeepEqual(m.Refused, down.Refused) {
			t.Fatal(err)
		}
		first = m.Pushes[0].Batches
		if err := f.Recv(&m); err != nil || len(m.Pushes)+len(m.Refused) != 0 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if !bytes.Equal(first, down.Pushes[0].Batches) {
		t.Error("what was received has changed")
	}
	f.Close()
	if err := f.Recv(&m); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
	await(t, ended)
}

func TestFollowingEndsWithTheLeadersAnswer(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	next := make(chan func(context.Context, Follow, FollowerStream) error, 1)
	s.Broker(&broker{follow: func(ctx context.Context, f Follow, st FollowerStream) error { return (<-next)(ctx, f, st) }})
	r := toB(t, peersTo(t, s.Addr()))
	for _, c := range []struct {
		follow func(context.Context, Follow, FollowerStream) error
		kind   fault.Kind
	}{
		{func(context.Context, Follow, FollowerStream) error { return fault.New(fault.Fenced, "old") }, fault.Fenced},
		{func(context.Context, Follow, FollowerStream) error { return nil }, fault.LeaderUnavailable},
		{func(_ context.Context, _ Follow, s FollowerStream) error {
			return s.Send(&FromLeader{Pushes: []Push{{Batches: make([]byte, MaxSendBytes+1)}}})
		}, fault.Internal},
	} {
		next <- c.follow
		f, err := r.Follow(t.Context(), asFollower)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Recv(&FromLeader{}); !fault.Is(err, c.kind) {
			t.Errorf("%v, want %v", err, c.kind)
		}
		f.Close()
	}
}

// A leader can end a stream that it waits on, and a server that stops does.
func TestALeaderEndsAStream(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	streams, ended := make(chan FollowerStream, 1), make(chan error, 1)
	s.Broker(&broker{follow: func(_ context.Context, _ Follow, st FollowerStream) error {
		streams <- st
		err := st.Recv(&FromFollower{})
		ended <- err
		return err
	}})
	r := toB(t, peersTo(t, s.Addr()))
	for _, end := range []func(FollowerStream){
		func(st FollowerStream) { st.End(); st.End() },
		func(FollowerStream) { s.stop() },
	} {
		f, err := r.Follow(t.Context(), asFollower)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		st := await(t, streams)
		wg.Go(func() { end(st) })
		if err := f.Recv(&FromLeader{}); !fault.Is(err, fault.LeaderUnavailable) && !fault.Is(err, fault.Draining) {
			t.Error(err)
		}
		if await(t, ended) == nil {
			t.Error("something was received")
		}
		wg.Wait()
		f.Close()
	}
	if f, err := r.Follow(t.Context(), asFollower); err == nil {
		err = f.Recv(&FromLeader{})
		f.Close()
		if !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
	} else if !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
}

// A follower that does not read holds the leader's sender up, and little memory.
func TestASlowFollowerHoldsItsLeaderUp(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	sent := make(chan int, 10000)
	s.Broker(&broker{follow: func(_ context.Context, _ Follow, st FollowerStream) error {
		push := FromLeader{Pushes: []Push{{Partition: topic, Batches: make([]byte, 64<<10)}}}
		for i := range cap(sent) {
			if err := st.Send(&push); err != nil {
				return err
			}
			sent <- i
		}
		return nil
	}})
	r := toB(t, peersTo(t, s.Addr()))
	f, err := r.Follow(t.Context(), asFollower)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for quiet := false; !quiet; {
		select {
		case last = <-sent:
		case <-time.After(300 * time.Millisecond):
			quiet = last >= 0
		}
	}
	if bytes := last * (64 << 10); bytes > 4*windowBytes {
		t.Errorf("%d bytes were sent to one that does not read", bytes)
	}
	var m FromLeader
	for range 2*last + 10 { // and it goes on
		if err := f.Recv(&m); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
}
