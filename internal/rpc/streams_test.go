package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

func TestOpeningsAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := opening{rapid.String().Draw(t, "method"), rapid.String().Draw(t, "caller")}
		b := whole(&o)
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.StreamOpen{})} {
			var got opening
			if err := got.decode(b); err != nil || got != o {
				t.Fatalf("%+v became %+v: %v", o, got, err)
			}
		}
		end := ending{refused: rapid.Bool().Draw(t, "refused"), taken: rapid.Uint64().Draw(t, "taken")}
		if rapid.Bool().Draw(t, "fails") {
			end.problem = fault.New(fault.Fenced, "old")
		}
		b = whole(&end)
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.StreamEnd{})} {
			var got ending
			if err := got.decode(b); err != nil || got.refused != end.refused || got.taken != end.taken || got.Error() != end.Error() {
				t.Fatalf("%+v became %+v: %v", end, got, err)
			}
		}
	})
}

func opens(o opening) []byte {
	var e encoder
	o.encode(&e)
	return slices.Concat(e.frame(frameOpen)...)
}

// Whatever a stranger says at the port is refused or ends, with a reason where it
// speaks frames, and takes no name in the metrics.
func TestStrangersAtTheDoor(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := serve(t, ServerConfig{IdleLimit: 3 * time.Second, Metrics: NewMetrics(reg)}, "127.0.0.1:0")
	s.Broker(&broker{append: keepAll})
	me := identity{cluster: theirs, source: cluster.Life{Node: nodeA, Epoch: 2}, target: nodeB}.String()
	whole := preface + string(opens(opening{methodAppend, me}))
	t.Run("stranger", func(t *testing.T) {
		for name, c := range map[string]struct{ say, reason string }{
			"nothing":              {"", ""},
			"a letter":             {"T", ""},
			"another protocol":     {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
			"a preface alone":      {preface, "cannot be read"},
			"a piece of an open":   {whole[:20], "cannot be read"},
			"another version":      {prefaceMark + "\x02" + whole[len(preface):], "version 2 of the frames between nodes, this node 1"},
			"no open":              {preface + string(frameOf(frameMessage, nil)), "begins with what it opens"},
			"an open of garbage":   {preface + string(frameOf(frameOpen, []byte{0xff})), "begins with what it opens"},
			"an open of megabytes": {preface + "\x01\x10\x00\x00\x00", "cannot be read"},
			"another format":       {preface + string(opens(opening{methodAppend, "9" + me[1:]})), "they run versions that do not go together"},
			"no caller":            {preface + string(opens(opening{methodAppend, ""})), "they run versions that do not go together"},
			"a stream of its own":  {preface + string(opens(opening{"Broker/Mine", me})), `no stream "Broker/Mine"`},
			"a long name":          {preface + string(opens(opening{strings.Repeat("x", 1000), me})), "no stream"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // some wait until the server has waited enough
				conn, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(conn, c.say); err != nil {
					t.Fatal(err)
				}
				f := newFramed(t.Context(), conn, NewMetrics(nil))
				_, _, err = f.next()
				var end *ending
				var e net.Error
				switch {
				case errors.As(err, &e) && e.Timeout():
					t.Error("it was left waiting")
				case c.reason == "":
				case !errors.As(err, &end) || !end.refused || !fault.Is(end.problem, fault.LeaderUnavailable) || !strings.Contains(end.Error(), c.reason):
					t.Errorf("it was told %v", err)
				}
			})
		}
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "method" && l.GetValue() != noMethod {
					t.Errorf("%s counts %q", f.GetName(), l.GetValue())
				}
			}
		}
	}
}

// What answers at a node's address may be anything. As long as no stream is open
// nothing was sent, and the error says so.
func TestWhatAnswersIsNoNode(t *testing.T) {
	for name, answer := range map[string]string{
		"an end of the connection": "",
		"garbage":                  "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a message":                string(frameOf(frameMessage, nil)),
		"half a frame":             "\x01\x00",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.ReadFull(conn, make([]byte, len(preface)+frameHead))
					_, _ = io.WriteString(conn, answer)
					conn.Close()
				}
			})
			defer serving.Wait()
			defer l.Close()
			r := toB(t, peersTo(t, l.Addr().String()))
			if a := appended(t, r, batchOf(10)); !fault.Is(a.Err, fault.LeaderUnavailable) {
				t.Errorf("an append: %v", a.Err)
			}
			if _, err := r.Follow(t.Context(), asFollower); !fault.Is(err, fault.LeaderUnavailable) {
				t.Errorf("a follower: %v", err)
			}
		})
	}
}

// A machine takes connections in for a process that is paused.
func TestAPausedNodeOpensNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := toB(t, peersTo(t, l.Addr().String()))
	began := time.Now()
	if a := appended(t, r, batchOf(10)); !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%v", a.Err)
	}
	if d := time.Since(began); d > 2*connectLimit {
		t.Errorf("it took %v", d)
	}
}

// Batches come by the thousand; connections to a node that is not there do not.
func TestAnUnreachableNodeIsLeftAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			conn.Close()
		}
	})
	defer serving.Wait()
	defer l.Close()
	r := toB(t, peersTo(t, l.Addr().String()))
	began := time.Now()
	for time.Since(began) < 400*time.Millisecond {
		if a := appended(t, r, batchOf(1)); !fault.Is(a.Err, fault.LeaderUnavailable) {
			t.Fatal(a.Err)
		}
	}
	if n := tries.Load(); n > 5 { // after 50, 80, 128, 205 ms
		t.Errorf("%d connections were tried", n)
	}
}

func TestStreamsAreCountedAtBothEnds(t *testing.T) {
	reg := prometheus.NewRegistry()
	counts := NewMetrics(reg)
	s := serve(t, ServerConfig{Metrics: counts}, "127.0.0.1:0")
	followed := make(chan struct{})
	s.Broker(&broker{append: keepAll, follow: func(_ context.Context, _ Follow, st FollowerStream) error {
		followed <- struct{}{}
		if err := st.Recv(&FromFollower{}); err != nil {
			return err
		}
		return fault.New(fault.Fenced, "old")
	}})
	p := NewPeers(PeersConfig{
		Self: func() cluster.Life { return cluster.Life{Node: nodeA, Epoch: 2} }, Cluster: func() ident.ClusterID { return theirs },
		Address: func(ident.NodeID) string { return s.Addr() }, Dialer: &Dialer{Self: nodeA}, Metrics: counts,
	})
	r := toB(t, p)
	if a := appended(t, r, batchOf(1000)); a.Err != nil {
		t.Fatal(a.Err)
	}
	f, err := r.Follow(t.Context(), asFollower)
	if err != nil {
		t.Fatal(err)
	}
	await(t, followed)
	for _, method := range []string{methodAppend, methodFollow} {
		if got := countedCalls(t, reg, "rpc_streams", method); got["caller "] != 1 || got["callee "] != 1 {
			t.Errorf("%s: %v are open", method, got)
		}
	}
	if err := f.Send(&FromFollower{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Recv(&FromLeader{}); !fault.Is(err, fault.Fenced) {
		t.Error(err)
	}
	p.Close()
	s.stop()
	for _, method := range []string{methodAppend, methodFollow} {
		if got := countedCalls(t, reg, "rpc_streams", method); got["caller "] != 0 || got["callee "] != 0 {
			t.Errorf("%s: %v are open when all is over", method, got)
		}
	}
	if got := countedCalls(t, reg, "rpc_calls_total", methodFollow); got["callee fenced"] != 1 {
		t.Errorf("%v", got)
	}
	// Which of both ends closes it first is open.
	if got := countedCalls(t, reg, "rpc_calls_total", methodAppend); got["callee ok"]+got["callee draining"] != 1 {
		t.Errorf("%v", got)
	}
}
