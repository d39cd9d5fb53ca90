package load

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"tidewire/internal/bench/message"
)

const testBytes = 40

// line is a delivered message.
func line(n int64) string {
	s := message.NewStencil(`{"topic":"t","partition":0,"offset":9,"timestamp":"2026-01-01T00:00:00.000Z","key":null,"content_type":"application/json","headers":{},"value":` +
		message.Value(testBytes) + "}")
	return string(s.Append(nil, n))
}

// text is a server's frame of some lines.
func text(lines ...string) []byte {
	payload := strings.Join(lines, "\n")
	b := []byte{0x81, 126, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(len(payload)))
	return append(b, payload...)
}

func run(numbers ...int64) []byte {
	lines := []string{fmt.Sprintf(`{"op":"messages","sub":"s1","count":%d}`, len(numbers))}
	for _, n := range numbers {
		lines = append(lines, line(n))
	}
	return text(lines...)
}

// testStage is a stage whose publisher has nowhere to write, with as many
// shares as are given subscribers.
func testStage(window int, subscribers ...int) *stage {
	g := &stage{clock: newClock(), due: &atomic.Int64{}, window: int64(window)}
	g.due.Store(int64(window))
	g.clock.keep(window)
	g.publisher = newLane(nil, g.clock, newRecorder(), nil, &atomic.Int64{}, window, 0, 1)
	for _, n := range subscribers {
		g.shares = append(g.shares, &share{stage: g, rec: newRecorder(), clock: g.clock, subscribers: n, counts: make([]int32, powerOfTwo(window))})
	}
	return g
}

func testSubscriber(s *share) *subscriber {
	x := newSubscriber("subscriber 1", s, testBytes, func(error) {})
	x.text = x.lines
	return x
}

func TestDeliveriesAreCountedAndTheWindowMovesWithTheSlowest(t *testing.T) {
	g := testStage(4, 2, 1)
	a, b, c := testSubscriber(g.shares[0]), testSubscriber(g.shares[0]), testSubscriber(g.shares[1])
	receive := func(x *subscriber, frame []byte) {
		t.Helper()
		for _, cut := range []int{1, 3, 30} { // what is not whole is not used
			if used, err := x.Receive(frame[:cut]); used != 0 || err != nil {
				t.Fatalf("the first %d bytes: %d used, %v", cut, used, err)
			}
		}
		if used, err := x.Receive(frame); used != len(frame) || err != nil {
			t.Fatalf("%d of %d bytes used, %v", used, len(frame), err)
		}
	}
	due := func(want int64) {
		t.Helper()
		if got := g.due.Load(); got != want {
			t.Fatalf("numbers below %d may leave, want %d", got, want)
		}
	}
	receive(a, run(0, 1, 2))
	receive(c, run(0, 1))
	due(0 + 4)
	receive(b, append(run(0), run(1, 2)...))
	due(2 + 4)
	receive(c, append(text(`{"op":"cursor","sub":"s1","cursor":"x"}`), run(2, 3)...))
	due(3 + 4)
	// One loses two and gets one again; the load goes on, and it is counted.
	receive(a, run(5, 5, 6))
	receive(b, run(3, 4, 5, 6))
	receive(c, run(4, 5, 6))
	due(7 + 4)
	r := g.shares[0].rec
	if r.lost != 2 || r.duplicates != 1 || r.messages != 13 {
		t.Errorf("lost %d, duplicates %d, deliveries %d; want 2, 1, 13", r.lost, r.duplicates, r.messages)
	}
}

func TestWhatNoSubscriberExpectsEndsTheLoad(t *testing.T) {
	for name, frame := range map[string][]byte{
		"a gap":             text(`{"op":"gap","sub":"s1","reason":"retention"}`),
		"an error":          text(`{"op":"error","code":"topic-not-found","detail":"it is gone"}`),
		"a goodbye":         text(`{"op":"closing","reason":"draining"}`),
		"fewer than said":   text(`{"op":"messages","sub":"s1","count":2}`, line(0)),
		"no count":          text(`{"op":"messages","sub":"s1"}`, line(0)),
		"another's message": text(`{"op":"messages","sub":"s1","count":1}`, `{"topic":"t","value":1}`),
		"no JSON":           text(`hello`),
		"a close":           {0x88, 2, 0x0F, 0xA1},
	} {
		g := testStage(4, 1)
		if _, err := testSubscriber(g.shares[0]).Receive(frame); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestOwnKeysCountDeliveriesNotNumbers(t *testing.T) {
	g := testStage(4, 1, 1)
	g.ownKeys = true
	a, b := testSubscriber(g.shares[0]), testSubscriber(g.shares[1])
	a.expect(0, 2)
	b.expect(1, 2)
	for _, x := range []struct {
		to *subscriber
		n  int64
	}{{b, 1}, {b, 3}, {a, 0}} {
		if _, err := x.to.Receive(run(x.n)); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.due.Load(); got != 3+4 {
		t.Errorf("numbers below %d may leave, want 7", got)
	}
	if r := g.shares[1].rec; r.lost != 0 || r.duplicates != 0 {
		t.Errorf("lost %d, duplicates %d", r.lost, r.duplicates)
	}
}
