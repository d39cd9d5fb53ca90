package rpc

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/testkit/ports"
)

var (
	nodeA   = ident.NodeID{0xa}
	nodeB   = ident.NodeID{0xb}
	theirs  = ident.ClusterID{0xc}
	topic   = ident.Partition{Topic: ident.TopicID{7}, Index: 3}
	keepAll = func(req Append, done func(Appended)) {
		done(Appended{Records: []RecordResult{{Offset: 5, Timestamp: 6}}})
	}
)

// broker is what a test makes of it; the rest is not there.
type broker struct {
	BrokerBackend
	append func(Append, func(Appended))
	read   func(Read) (ReadResult, error)
	bounds func(ident.Partition) (Bounds, error)
	wait   func(ident.Partition, ident.Offset) (<-chan struct{}, error)
	follow func(context.Context, Follow, FollowerStream) error
	life   cluster.Life
	gone   bool // of the latest reply to keep

	take      func(context.Context, Take) (Taken, error)
	settle    func(context.Context, Settle) (Settled, error)
	standings func(StandingsOf) ([]GroupStanding, error)
	status    func(RecordStatusOf) ([]RecordStatus, error)
	mail      replies
}

func (b *broker) Append(req Append, done func(Appended)) { b.append(req, done) }

func (b *broker) Read(_ context.Context, r Read) (ReadResult, error) { return b.read(r) }

func (b *broker) Bounds(p ident.Partition) (Bounds, error) { return b.bounds(p) }

func (b *broker) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	return b.wait(p, after)
}

func (b *broker) OffsetAt(_ context.Context, _ ident.Partition, ms int64) (ident.Offset, error) {
	return ident.Offset(ms + 1), nil
}

func (b *broker) EpochEnd(_ ident.Partition, e ident.Epoch) (ident.Offset, error) {
	return 0, fault.New(fault.Fenced, "epoch %d", e).With("expected", 9)
}

func (b *broker) ServeFollow(ctx context.Context, f Follow, s FollowerStream) error {
	return b.follow(ctx, f, s)
}

func (b *broker) Probe(context.Context) (cluster.Life, error) { return b.life, nil }

func (b *broker) Take(ctx context.Context, t Take) (Taken, error) { return b.take(ctx, t) }

func (b *broker) Settle(ctx context.Context, s Settle) (Settled, error) { return b.settle(ctx, s) }

func (b *broker) Standings(_ context.Context, s StandingsOf) ([]GroupStanding, error) {
	return b.standings(s)
}

func (b *broker) RecordStatus(_ context.Context, s RecordStatusOf) ([]RecordStatus, error) {
	return b.status(s)
}

// served is a server of a test. It stops with the test, or before.
type served struct {
	*Server
	stop func()
}

func serve(t testing.TB, cfg ServerConfig, bind string) served {
	t.Helper()
	cfg.Bind = bind
	if cfg.Self == nil {
		cfg.Self = func() cluster.Life { return cluster.Life{Node: nodeB, Epoch: 4} }
	}
	if cfg.Cluster == nil {
		cfg.Cluster = func() ident.ClusterID { return theirs }
	}
	if cfg.StopLimit == 0 {
		cfg.StopLimit = 2 * time.Second
	}
	s := NewServer(cfg)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return served{s, stop}
}

// peersTo are the connections of node A, which knows node B at an address.
func peersTo(t testing.TB, address string) *Peers {
	t.Helper()
	p := NewPeers(PeersConfig{
		Self:    func() cluster.Life { return cluster.Life{Node: nodeA, Epoch: 2} },
		Cluster: func() ident.ClusterID { return theirs },
		Address: func(n ident.NodeID) string {
			if n == nodeB {
				return address
			}
			return ""
		},
		Dialer: &Dialer{Self: nodeA},
	})
	t.Cleanup(p.Close)
	return p
}

func toB(t testing.TB, p *Peers) *Peer {
	t.Helper()
	r, err := p.Node(nodeB)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// batchOf is a sealed batch of one record with a value of so many bytes.
func batchOf(bytes int) record.Batch {
	var b record.Builder
	b.Add(&record.Record{Value: make([]byte, bytes)})
	return b.Seal()
}

// appended makes an append and waits for its answer.
func appended(t testing.TB, r *Peer, b record.Batch) Appended {
	t.Helper()
	answer := make(chan Appended, 1)
	r.Append(Append{Partition: topic, Batch: b}, func(a Appended) { answer <- a })
	return await(t, answer)
}

// parted waits until a peer knows that its connection has ended: what it asks for
// before that may have reached somebody, for all it knows.
func parted(t testing.TB, r *Peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for r.conn.GetState() == connectivity.Ready {
		if !r.conn.WaitForStateChange(ctx, connectivity.Ready) {
			t.Fatal("the connection does not end")
		}
	}
	r.appends.streams.Wait()
}

func await[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// refusing is an address at which nobody listens.
func refusing(t testing.TB) string { return ports.Keep(t) }

func (b *broker) KeepReply(_ context.Context, to string, r *inbox.Reply, gone bool) (Handed, error) {
	b.gone = gone
	return b.mail.keep(to, r)
}

func (b *broker) Original(_ context.Context, s Sought) (Original, error) { return b.mail.original(s) }

func (b *broker) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (Collected, error) {
	return b.mail.collect(ctx, to, until, wait)
}
