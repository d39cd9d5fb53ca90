package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"tidewire/internal/testkit/memnet"
)

// byName is raft's stream layer to others by their addresses.
type byName struct {
	*memnet.Listener
	others map[raft.ServerAddress]*memnet.Listener

	mu     sync.Mutex
	dialed []net.Conn
}

func (l *byName) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := l.others[to].Dial(ctx, "", "")
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dialed = append(l.dialed, conn)
	}
	return conn, err
}

// hangUp ends all connections. raft leaves those open that it dialed while it stopped.
func (l *byName) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.dialed {
		_ = conn.Close() // most are closed already
	}
}

func inMemoryTransport(l raft.StreamLayer) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: l, MaxPool: 3, Timeout: transportTimeout, Logger: hclog.NewNullLogger()})
}

// peer answers as a member that agrees to everything, until it is told to hold back.
// A heartbeat that comes then stays in held, for the test to answer.
type peer struct {
	*raft.NetworkTransport
	hold chan struct{} // closed: heartbeats are held back
	held chan raft.RPC // the first of them
}

func (p *peer) run(stop <-chan struct{}) {
	for {
		select {
		case call := <-p.Consumer():
			p.answer(call)
		case <-stop:
			return
		}
	}
}

func (p *peer) answer(call raft.RPC) {
	switch c := call.Command.(type) {
	case *raft.RequestPreVoteRequest:
		call.Respond(&raft.RequestPreVoteResponse{Term: c.Term, Granted: true}, nil)
	case *raft.RequestVoteRequest:
		call.Respond(&raft.RequestVoteResponse{Term: c.Term, Granted: true}, nil)
	case *raft.AppendEntriesRequest:
		select {
		case <-p.hold:
		default:
			agree(call)
			return
		}
		if isHeartbeat(c) {
			select {
			case p.held <- call:
			default: // a later one is answered by nobody
			}
		}
	}
}

func agree(call raft.RPC) {
	c := call.Command.(*raft.AppendEntriesRequest)
	last := c.PrevLogEntry
	if n := len(c.Entries); n > 0 {
		last = c.Entries[n-1].Index
	}
	call.Respond(&raft.AppendEntriesResponse{Term: c.Term, LastLog: last, Success: true}, nil)
}

// Answers to heartbeats that were sent before a proof was asked for prove nothing:
// whoever gave them may have another leader by now.
func TestAnAnswerFromBeforeProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		mine := &byName{Listener: memnet.Listen(), others: map[raft.ServerAddress]*memnet.Listener{}}
		var peers []*peer
		servers := []raft.Server{{ID: "a", Address: "a"}}
		for _, id := range []string{"b", "c"} {
			l := memnet.Listen()
			mine.others[raft.ServerAddress(id)] = l
			servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
			p := &peer{inMemoryTransport(&byName{Listener: l}), make(chan struct{}), make(chan raft.RPC, 1)}
			peers = append(peers, p)
			go p.run(stop)
		}
		var leader *raft.Raft
		trans := newPatient(inMemoryTransport(mine), func() *raft.Raft { return leader }, newStore(nil, nil, nil), stop)
		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.Logger = "a", hclog.NewNullLogger()
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = clusterTimeout, clusterTimeout, leaseTimeout
		store := raft.NewInmemStore()
		if err := raft.BootstrapCluster(cfg, store, store, raft.NewInmemSnapshotStore(), trans, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		leader, err := raft.NewRaft(cfg, &raft.MockFSM{}, store, store, raft.NewInmemSnapshotStore(), trans)
		if err != nil {
			t.Fatal(err)
		}
		for won := range leader.LeaderCh() {
			if won {
				break
			}
		}
		prove := func() chan error {
			done := make(chan error, 1)
			go func() {
				done <- trans.witness.prove(t.Context(), leader, "a", func(context.Context) error { return leader.VerifyLeader().Error() })
			}()
			return done
		}
		if err := <-prove(); err != nil {
			t.Fatalf("while all agree: %v", err)
		}

		for _, p := range peers {
			close(p.hold)
		}
		var held []raft.RPC
		for _, p := range peers {
			held = append(held, <-p.held)
		}
		proof := prove()
		synctest.Wait() // raft counts answers for it now
		for _, call := range held {
			agree(call)
		}
		synctest.Wait()
		select {
		case err := <-proof:
			t.Errorf("proven by answers from before: %v", err)
		default:
		}
		close(stop)
		if err := leader.Shutdown().Error(); err != nil {
			t.Error(err)
		}
		_ = trans.Close()
		for _, p := range peers {
			_ = p.Close()
		}
		mine.hangUp()
	})
}

func TestWitness(t *testing.T) {
	all := []raft.ServerID{"a", "b", "c"}
	for name, c := range map[string]struct {
		voters []raft.ServerID
		tell   func(w *witness, after uint64)
		want   bool
	}{
		"alone":                      {all[:1], func(*witness, uint64) {}, true},
		"one of two others":          {all, func(w *witness, after uint64) { w.agreed("c", after+1, 5) }, true},
		"sent before":                {all, func(w *witness, after uint64) { w.agreed("c", after-1, 5) }, false},
		"of another term":            {all, func(w *witness, after uint64) { w.agreed("c", after+1, 4) }, false},
		"one who has no vote":        {all, func(w *witness, after uint64) { w.agreed("d", after+1, 5) }, false},
		"one of one other":           {all[:2], func(w *witness, after uint64) { w.agreed("b", after+1, 5) }, true},
		"nobody of one other":        {all[:2], func(*witness, uint64) {}, false},
		"an older answer comes late": {all, func(w *witness, after uint64) { w.agreed("c", after+1, 5); w.agreed("c", after-1, 5) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWitness()
			w.now()
			after := w.now()
			c.tell(w, after)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			err := w.majority(ended, after, 5, "a", c.voters)
			if (err == nil) != c.want || err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
