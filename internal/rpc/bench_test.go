package rpc

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

func peerOf(b *testing.B) *Peer {
	s := serve(b, ServerConfig{}, "127.0.0.1:0")
	s.Broker(&broker{append: keepAll, follow: func(_ context.Context, _ Follow, st FollowerStream) error {
		var m FromFollower
		for {
			if err := st.Recv(&m); err != nil {
				return err
			}
			push := FromLeader{Pushes: []Push{{Partition: topic, Epoch: 3, HW: 9, Batches: batchOf(1 << 10)}}}
			for range m.Held[0].Epoch {
				if err := st.Send(&push); err != nil {
					return err
				}
			}
		}
	}})
	return toB(b, peersTo(b, s.Addr()))
}

// One batch at a time: how long it takes to be answered.
func BenchmarkAppendPingPong(b *testing.B) {
	batch := batchOf(1 << 10)
	b.Run("tcp", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			in := make([]byte, len(batch))
			for {
				if _, err := io.ReadFull(c, in); err != nil {
					return
				}
				if _, err := c.Write(in[:32]); err != nil {
					return
				}
			}
		})
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close(); l.Close(); wg.Wait() })
		out := make([]byte, 32)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Write(batch); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, out); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("peer", func(b *testing.B) {
		r := peerOf(b)
		answer := make(chan Appended, 1)
		done := func(a Appended) { answer <- a }
		b.ReportAllocs()
		for b.Loop() {
			r.Append(Append{Partition: topic, Epoch: 9, Batch: batch}, done)
			if a := <-answer; a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	})
}

// Many batches under way: what one costs.
func BenchmarkAppendManyUnderWay(b *testing.B) {
	batch := batchOf(1 << 10)
	const underWay = 256
	b.Run("peer", func(b *testing.B) {
		r := peerOf(b)
		room := make(chan struct{}, underWay)
		done := func(a Appended) {
			if a.Err != nil {
				b.Error(a.Err)
			}
			<-room
		}
		b.ReportAllocs()
		b.SetBytes(1 << 10)
		for b.Loop() {
			room <- struct{}{}
			r.Append(Append{Partition: topic, Epoch: 9, Batch: batch}, done)
		}
		for range underWay {
			room <- struct{}{}
		}
	})
}

// Replication in one direction: what a push of 1 KiB costs.
func BenchmarkPushes(b *testing.B) {
	r := peerOf(b)
	f, err := r.Follow(context.Background(), asFollower)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var m FromLeader
	b.ReportAllocs()
	b.SetBytes(1 << 10)
	const at = 64
	for n := 0; b.Loop(); n++ {
		if n%at == 0 {
			if err := f.Send(&FromFollower{Held: []Held{{Epoch: at}}}); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Recv(&m); err != nil || len(m.Pushes) != 1 {
			b.Fatal(err)
		}
	}
}

// A replication round trip: a follower says something, and the leader pushes.
func BenchmarkFollowPingPong(b *testing.B) {
	r := peerOf(b)
	f, err := r.Follow(context.Background(), asFollower)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var m FromLeader
	held := FromFollower{Held: []Held{{Epoch: 1}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Send(&held); err != nil {
			b.Fatal(err)
		}
		if err := f.Recv(&m); err != nil {
			b.Fatal(err)
		}
	}
}
