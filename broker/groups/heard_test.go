package groups

import (
	"fmt"
	"testing"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// A take says what came of those before it, and so do waits and settlements: what was leased in
// an answer that was lost comes again before anything else.
func TestTakesSayWhichAnswersCame(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c", "d", "e", "f")
		m1 := s.join(g, "m1")
		take := func(limit int, of rpc.Hearing, want string) {
			t.Helper()
			got, err := b.Take(t.Context(), rpc.Take{MemberLife: m1, Partitions: []ident.Partition{ref}, Limit: limit, MaxBytes: 1 << 20, Taker: of.Taker, Call: of.Call, Heard: []uint64{of.Heard}})
			if err != nil || got.Of[0].Err != nil {
				t.Fatal(got, err)
			}
			var said []string
			for _, l := range got.Of[0].Leases {
				said = append(said, fmt.Sprintf("%d/%d", l.Offset, l.Delivery))
			}
			if fmt.Sprint(said) != want {
				t.Errorf("got %v, want %s", said, want)
			}
		}
		take(2, rpc.Hearing{Taker: 1, Call: 1}, "[0/1 1/1]")
		take(1, rpc.Hearing{Taker: 1, Call: 2}, "[0/1]")
		take(1, rpc.Hearing{Taker: 1, Call: 3, Heard: 2}, "[1/1]")
		take(0, rpc.Hearing{Taker: 1, Call: 4, Heard: 2}, "[]") // a wait
		take(9, rpc.Hearing{Taker: 1, Call: 3, Heard: 2}, "[]") // comes late
		take(1, rpc.Hearing{Taker: 1, Call: 4, Heard: 2}, "[1/1]")
		if _, err := b.Settle(t.Context(), rpc.Settle{MemberLife: m1, Of: []rpc.SettleOf{{Partition: ref, Ack: []ident.Offset{0}, Through: -1, Heard: 2}}, Taker: 1, Call: 5}); err != nil {
			t.Fatal(err)
		}
		take(2, rpc.Hearing{Taker: 1, Call: 5, Heard: 2}, "[1/1 2/1]")
		time.Sleep(31 * time.Second) // nobody says any more what came of that: its leases end
		take(9, rpc.Hearing{Taker: 2, Call: 1}, "[1/2 2/2 3/1 4/1 5/1]")
	})
}
