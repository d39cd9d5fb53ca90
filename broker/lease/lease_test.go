package lease

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

var begun = time.Unix(1000, 0)

func groupOf(mode cluster.GroupMode) *cluster.Group {
	g := &cluster.Group{
		ID: ident.GroupID{1}, Modified: 5, Members: []cluster.Member{{ID: "a", Epoch: 5}},
		Settings: cluster.GroupSettings{Mode: mode, Lease: 10 * time.Second, MaxDeliveries: 3, Backoff: time.Second, MaxInFlight: cluster.MaxUnfinished},
	}
	if mode == cluster.Exclusive {
		g.Owners = []cluster.Owner{{Member: "a", Epoch: 5, Released: true}}
	}
	return g
}

func lifeOf(g *cluster.Group) cluster.MemberLife {
	return cluster.MemberLife{Group: g.ID, Member: "a", Epoch: 5}
}

func machineOf(g *cluster.Group, high ident.Offset) *Machine {
	return Begin(begun, Config{Leader: 1}, g, cluster.GroupProgress{Group: g.ID}, 0, high)
}

// fill offers all that the machine wants, up to n.
func fill(m *Machine, n int) {
	for {
		from, count := m.Wants(n)
		if count == 0 {
			return
		}
		records := make([]Record, count)
		for i := range records {
			o := from + ident.Offset(i)
			records[i] = Record{Offset: o, Hash: uint32(o % 64), Keyed: true, Stamp: 1}
		}
		m.Offer(from, from+ident.Offset(count), records)
	}
}

func TestWhatIsNotDoneIsBounded(t *testing.T) {
	g := groupOf(cluster.Exclusive)
	m := machineOf(g, 5_000)
	fill(m, 5_000)
	if n := m.window.len(); n != cluster.MaxUnfinished || !m.Paused() || !m.Standing(begun).Paused {
		t.Fatal(n, m.Paused())
	}
	// Records that are not in the window's order, from a former leader's time, count as well.
	got, err := m.Settle(begun, lifeOf(g), rpc.SettleOf{Ack: []ident.Offset{4_000}, Through: -1})
	if err != nil || len(got.Stale) != 1 || m.window.len() != cluster.MaxUnfinished {
		t.Fatal(got, err)
	}
	// Where the first one stays and all others are done, hundreds of thousands go through.
	m = machineOf(g, 300_000)
	life := lifeOf(g)
	fill(m, 1)
	if l, _ := m.Take(begun, life, 1, rpc.Hearing{}); len(l) != 1 {
		t.Fatal("nothing leased")
	}
	for m.Standing(begun).Lag > 1 {
		fill(m, 500)
		var acks []ident.Offset
		leases, _ := m.Take(begun, life, 500, rpc.Hearing{})
		for _, l := range leases {
			acks = append(acks, l.Offset)
		}
		if len(acks) == 0 {
			t.Fatal("nothing to lease")
		}
		if _, err := m.Settle(begun, life, rpc.SettleOf{Ack: acks, Through: -1}); err != nil {
			t.Fatal(err)
		}
		of := m.Delta(cluster.MaxCommitBytes)
		if len(of) != 1 || len(of[0].Done) != 1 {
			t.Fatalf("%+v", of)
		}
		m.Committed(begun, []bool{true})
		m.Answers()
	}
	if m.Floor() != 0 || len(m.window.order) > 8 || len(m.known) > 0 {
		t.Fatalf("floor %d, %d places, known %v", m.Floor(), len(m.window.order), m.known)
	}
}

func TestAPoisonRecordIsDeadAfterItsLastDelivery(t *testing.T) {
	for _, mode := range []cluster.GroupMode{cluster.Exclusive, cluster.Shared} {
		g := groupOf(mode)
		m := machineOf(g, 1)
		fill(m, 1)
		now, given := begun, 0
		for range 100 {
			leases, err := m.Take(now, lifeOf(g), 5, rpc.Hearing{})
			if err != nil {
				t.Fatal(err)
			}
			given += len(leases)
			if len(leases) > 0 && given%2 == 0 { // by turns, it says so or falls silent
				if _, err := m.Settle(now, lifeOf(g), rpc.SettleOf{Through: -1, Nack: []rpc.Nack{{Offset: 0, Delay: -1}}}); err != nil {
					t.Fatal(err)
				}
			}
			if st := m.Status(now, 0); (st.State == rpc.DeadState) != (given == 3 && m.Deadline().IsZero()) {
				t.Fatal(st, given)
			}
			if d := m.Deadline(); d.IsZero() {
				break
			} else {
				now = d
			}
			m.Tick(now)
		}
		if given != 3 || m.Status(now, 0).State != rpc.DeadState {
			t.Fatalf("%s: %d leases, %v", mode, given, m.Status(now, 0))
		}
		// 10 s and 1 s of backoff, a nack at once and 2 s, 10 s.
		if d := now.Sub(begun); d != 23*time.Second {
			t.Fatal(d)
		}
	}
}

func TestTheBackoffDoublesUpToAMinute(t *testing.T) {
	m := machineOf(groupOf(cluster.Shared), 0)
	for given, want := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1_000: time.Minute} {
		if d := m.backoff(&entry{given: given}); d != want {
			t.Errorf("after %d deliveries %v, not %v", given, d, want)
		}
	}
}

// A budget is kept, however unlucky its contents, and what does not fit comes next.
func TestADeltaIsAsLargeAsAllowed(t *testing.T) {
	g := groupOf(cluster.Shared)
	g.Members = []cluster.Member{{ID: strings.Repeat("<", 64), Epoch: 1 << 60}}
	life := cluster.MemberLife{Group: g.ID, Member: g.Members[0].ID, Epoch: 1 << 60}
	const high = 1 << 60
	m := Begin(begun, Config{Leader: 1 << 31}, g, cluster.GroupProgress{Group: g.ID, Progress: cluster.Progress{Floor: high - 2_000, Sequence: 1 << 52}}, 0, high)
	fill(m, 1_000)
	if _, err := m.Take(begun, life, 1_000, rpc.Hearing{}); err != nil {
		t.Fatal(err)
	}
	of := rpc.SettleOf{Through: -1}
	for i := range ident.Offset(1_000) {
		switch o := high - 2_000 + i; i % 3 {
		case 0:
			of.Ack = append(of.Ack, o)
		case 1:
			of.Reject = append(of.Reject, rpc.Reject{Offset: o, Reason: strings.Repeat("\x01", 600)})
		}
	}
	got, err := m.Settle(begun, life, of)
	if err != nil || len(got.Stale) > 0 {
		t.Fatal(got, err)
	}
	answered := false
	for n := 0; m.Dirty(); n++ {
		budget := []int{4_000, cluster.MaxCommitBytes}[n%2]
		parts := m.Delta(budget)
		taken := make([]bool, len(parts))
		for i := range parts {
			b, err := json.Marshal(parts[i])
			if err != nil {
				t.Fatal(err)
			}
			budget -= len(b)
			taken[i] = true
		}
		if budget < 0 || len(parts) == 0 {
			t.Fatalf("%d parts, %d bytes too much", len(parts), -budget)
		}
		m.Committed(begun, taken)
		for _, a := range m.Answers() {
			answered = answered || a.Token == got.Token && len(a.Stale) == 0
		}
	}
	if !answered || len(m.Letters()) != 333 {
		t.Fatal(answered, len(m.Letters()))
	}
}

// FuzzMachine feeds it what no caller would say.
func FuzzMachine(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add([]byte{0, 9, 1, 8, 2, 3, 3, 0, 3, 1, 4, 0, 5, 0, 6, 3, 7, 2, 8, 1, 9, 9, 10, 3, 11, 0, 12, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		in = in[:min(len(in), 400)]
		g := groupOf([]cluster.GroupMode{cluster.Exclusive, cluster.Shared}[len(in)%2])
		now := begun
		m := Begin(now, Config{Leader: 1, Alone: now}, g, cluster.GroupProgress{Group: g.ID, Progress: cluster.Progress{
			Floor: 3, Done: []cluster.Span{{From: 5, To: 7}}, Counts: []cluster.Count{{Offset: 8, Deliveries: 2}}, Intents: []cluster.Intent{{Offset: 9, Sequence: 2}}, Sequence: 3,
		}}, 0, 20)
		for ; len(in) >= 2 && !m.Over(); in = in[2:] {
			o := ident.Offset(in[1]) - 4
			of := rpc.SettleOf{Through: -1}
			switch in[0] % 14 {
			case 0:
				m.Moved(now, o, 2*o)
			case 1:
				m.Offer(o, o+9, []Record{{Offset: o + 3}, {Offset: o + 1}, {Offset: o + 1, Keyed: true}, {Offset: o + 5, Keyed: true}, {Offset: o + 7, Keyed: true}})
			case 2:
				fill(m, int(in[1]))
			case 3:
				_, _ = m.Take(now, lifeOf(g), int(o), rpc.Hearing{})
			case 4:
				of.Ack = []ident.Offset{o, o, -o, 3, 4}
			case 5:
				of.Through = o
			case 6:
				of.Nack = []rpc.Nack{{Offset: o, Delay: time.Duration(o)}, {Offset: 4, Delay: -1}}
			case 7:
				of.Extend = []ident.Offset{o, 3}
			case 8:
				of.Reject = []rpc.Reject{{Offset: o, Reason: string(in)}, {Offset: 5}}
			case 9:
				now = now.Add(time.Duration(o) * time.Second)
				m.Tick(now)
			case 10:
				m.Delta(int(binary.BigEndian.Uint16(in)))
			case 11:
				m.Committed(now, []bool{in[1]%2 == 0, in[1]%3 == 0})
				m.Answers()
			case 12:
				m.Unknown(now)
			case 13:
				next := *g
				next.Modified += uint64(in[1] % 3)
				if len(next.Owners) > 0 {
					next.Owners = []cluster.Owner{{Member: "a", Epoch: ident.Assignment(next.Modified), Next: string(in[1:2]), Released: in[1]%2 == 0}}
				}
				next.Members = []cluster.Member{{ID: "a", Epoch: 5}}
				m.See(now, &next)
				g = &next
				m.Published(o)
			}
			_, _ = m.Settle(now, lifeOf(g), of)
			m.Free(now)
			m.Standing(now)
			m.Status(now, o)
			m.Letters()
			m.Deadline()
			if !m.Over() {
				m.whole(t)
			}
		}
	})
}

// BenchmarkRecord is what one record costs, from the offer to the end of its commit.
func BenchmarkRecord(b *testing.B) {
	for _, mode := range []cluster.GroupMode{cluster.Exclusive, cluster.Shared} {
		for _, at := range []int{1, 100, 1_000} {
			b.Run(fmt.Sprintf("%s/%d", mode, at), func(b *testing.B) {
				g := groupOf(mode)
				g.Settings.Lease = time.Hour
				life := lifeOf(g)
				m := machineOf(g, 1<<40)
				now := begun
				acks := make([]ident.Offset, 0, at)
				b.ReportAllocs()
				for n := 0; n < b.N; n += at {
					fill(m, at)
					leases, err := m.Take(now, life, at, rpc.Hearing{})
					if err != nil || len(leases) != at {
						b.Fatal(len(leases), err)
					}
					acks = acks[:0]
					for _, l := range leases {
						acks = append(acks, l.Offset)
					}
					if _, err := m.Settle(now, life, rpc.SettleOf{Ack: acks, Through: -1}); err != nil {
						b.Fatal(err)
					}
					m.Delta(cluster.MaxCommitBytes)
					m.Committed(now, []bool{true})
					m.Answers()
					now = now.Add(time.Millisecond)
				}
			})
		}
	}
}
