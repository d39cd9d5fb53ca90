package consensus

import (
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A cluster of one cannot vote above the highest term there is: a stranger that
// names it would end the cluster for good.
func TestALoneNodeHearsNobody(t *testing.T) {
	dir := t.TempDir()
	cfg, _ := tapeConfig(dir)
	cfg.Found = true
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	term := n.Status().Term
	stranger, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	call := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.id()), Addr: []byte(n.Addr())}
	for _, term := range []uint64{100, math.MaxUint64} {
		if err := stranger.AppendEntries(n.id(), raft.ServerAddress(n.Addr()), &raft.AppendEntriesRequest{RPCHeader: call, Term: term}, &raft.AppendEntriesResponse{}); err == nil {
			t.Errorf("entries of term %d were answered", term)
		}
		if err := stranger.RequestVote(n.id(), raft.ServerAddress(n.Addr()), &raft.RequestVoteRequest{RPCHeader: call, Term: term}, &raft.RequestVoteResponse{}); err == nil {
			t.Errorf("a vote in term %d was answered", term)
		}
		if err := stranger.TimeoutNow(n.id(), raft.ServerAddress(n.Addr()), &raft.TimeoutNowRequest{RPCHeader: call}, &raft.TimeoutNowResponse{}); err == nil {
			t.Error("an election was begun")
		}
	}
	conn, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection without a word is kept open: %v", err)
	}
	say(t, n, 0, 1)
	if now := n.Status(); now.Term != term || !now.Leads {
		t.Errorf("term %d, leads: %v; it was %d", now.Term, now.Leads, term)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(t, dir); err != nil {
		t.Errorf("it does not start again: %v", err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
