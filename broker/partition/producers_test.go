package partition

import (
	"testing"

	"tidewire/internal/ident"
)

// A producer whose window is full goes on in the room that it has.
func TestAFullWindowStaysWhereItIs(t *testing.T) {
	p := filled()
	room := cap(p.room)
	if n := testing.AllocsPerRun(10*WindowRecords, func() { p.add(follows(p), WindowRecords) }); n != 0 || cap(p.room) != room {
		t.Errorf("%v allocations a record; room for %d runs, and then for %d", n, room, cap(p.room))
	}
	if room > 2*WindowRecords || len(p.runs) != WindowRecords {
		t.Errorf("%d runs in a room for %d; the window is of %d", len(p.runs), room, WindowRecords)
	}
	for i, r := range p.runs {
		if want := p.next - WindowRecords + int64(i); r.sequence != want {
			t.Fatalf("run %d is of sequence %d, want %d", i, r.sequence, want)
		}
	}
}

func BenchmarkAFullWindow(b *testing.B) {
	p := filled()
	for b.Loop() {
		p.add(follows(p), WindowRecords)
	}
}

// filled is a producer with a full window of runs that do not join.
func filled() *producer {
	p := &producer{}
	for range 4 * WindowRecords {
		p.add(follows(p), WindowRecords)
	}
	return p
}

func follows(p *producer) run {
	return run{sequence: p.next, offset: ident.Offset(2 * p.next), count: 1, timestamp: p.last + 1}
}
