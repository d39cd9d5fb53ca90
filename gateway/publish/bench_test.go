package publish

import (
	"strings"
	"sync"
	"testing"

	"tidewire/internal/rpc"
)

// groupLeader keeps a batch under way until it is told to answer.
type groupLeader struct {
	mu      sync.Mutex
	done    func(rpc.Appended)
	results []rpc.RecordResult
}

func (l *groupLeader) Append(req rpc.Append, done func(rpc.Appended)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = done
	l.results = append(l.results[:0], make([]rpc.RecordResult, req.Batch.Header().Entries)...)
}

// answer ends the batch under way, whose end sends the next.
func (l *groupLeader) answer() {
	l.mu.Lock()
	done, results := l.done, l.results
	l.done, l.results = nil, nil
	l.mu.Unlock()
	if done != nil {
		done(rpc.Appended{Records: results})
	}
}

// publishGroups publishes n records, so many at a time.
func publishGroups(p *Publisher, l *groupLeader, n, group int, value string, done func(Result)) {
	req := Request{Topic: "orders", Partition: zero(), Record: text(value), Tag: Tag{Owner: 1}}
	for i := range n {
		p.Publish(req, done)
		if i%group == group-1 {
			l.answer() // the one that went ahead of the others
			l.answer()
		}
	}
	l.answer()
	l.answer()
}

func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct {
		name  string
		group int
	}{{"one in flight", 1}, {"256 in flight", 256}} {
		b.Run(c.name, func(b *testing.B) {
			w := orders()
			w.snapshot.Topics["orders"].Settings.MaxMessageBytes = 64 << 10
			l := &groupLeader{}
			p := New(Config{Topology: w, Leader: l})
			value := strings.Repeat("x", 1024)
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			b.ResetTimer()
			publishGroups(p, l, b.N, c.group, value, func(r Result) {
				if r.Err != nil {
					b.Error(r.Err)
				}
			})
		})
	}
}

// What a batch costs is shared by its records.
func TestARecordAmongOthersAllocatesNothingOfItsOwn(t *testing.T) {
	w := orders()
	w.snapshot.Topics["orders"].Settings.MaxMessageBytes = 64 << 10
	l := &groupLeader{}
	p := New(Config{Topology: w, Leader: l})
	value := strings.Repeat("x", 1024)
	kept := 0
	round := func() { publishGroups(p, l, 256, 256, value, func(Result) { kept++ }) }
	if per := testing.AllocsPerRun(20, round) / 256; per > 0.5 {
		t.Errorf("%.2f allocations a record", per)
	}
	if kept != 21*256 {
		t.Errorf("%d answers to %d records", kept, 21*256)
	}
}

// Whoever published several records of a batch hears with which result the last
// of a row comes.
func TestResultsOfOneOwnerInARowSaySo(t *testing.T) {
	l := &groupLeader{}
	p := New(Config{Topology: orders(), Leader: l})
	var said strings.Builder
	publish := func(owner int, id int64) {
		req := Request{Topic: "orders", Partition: zero(), Record: text("v"), Tag: Tag{ID: id, Owner: owner}}
		p.Publish(req, func(r Result) {
			said.WriteByte(byte('0' + r.Tag.ID))
			if r.More {
				said.WriteByte('+')
			}
		})
	}
	publish(1, 0)                                      // goes ahead alone
	for i, owner := range []int{1, 1, 1, 2, 1, 0, 0} { // 0 is nobody in particular
		publish(owner, int64(i+1))
	}
	l.answer()
	l.answer()
	if said.String() != "01+2+34567" {
		t.Fatal(said.String())
	}
}
