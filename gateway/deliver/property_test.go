package deliver_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// reader is a subscription held against the log it reads.
type reader struct {
	m        *memlog.Broker
	topic    *cluster.Topic
	sub      *deliver.Subscription
	filter   deliver.Filter
	next     map[ident.Index]ident.Offset // all before was seen, or told to be missing
	got      int
	gaps     int
	cuts     int
	cut      map[ident.Index]bool // and it has yet to hear of it
	notified atomic.Bool
}

func (r *reader) wants(key string) bool {
	switch {
	case r.filter.KeyPrefix != "":
		return strings.HasPrefix(key, r.filter.KeyPrefix)
	case len(r.filter.Keys) > 0:
		for _, k := range r.filter.Keys {
			if k == key {
				return true
			}
		}
		return false
	}
	return true
}

// check holds one message against the log: it must be the next wanted one.
func (r *reader) check(t *testing.T, p ident.Index, o ident.Offset, line []byte) {
	t.Helper()
	keys, _ := r.m.Keys(r.topic.Ref(p))
	next, ok := r.next[p]
	if !ok {
		t.Fatalf("a message of partition %d, which was not asked for", p)
	}
	for next < ident.Offset(len(keys)) && !r.wants(keys[next]) {
		next++
	}
	if o != next || o >= ident.Offset(len(keys)) {
		t.Fatalf("partition %d: got offset %d, the next wanted one is %d", p, o, next)
	}
	var msg struct {
		Topic     string
		Partition ident.Index
		Offset    ident.Offset
		Key       *string
		Value     struct{ N, Of int64 }
	}
	if err := json.Unmarshal(line, &msg); err != nil {
		t.Fatalf("message %q: %v", line, err)
	}
	key := ""
	if msg.Key != nil {
		key = *msg.Key
	}
	if msg.Topic != r.topic.Name || msg.Partition != p || msg.Offset != o || key != keys[o] || msg.Value.N != int64(o) || msg.Value.Of != int64(p) {
		t.Fatalf("message %s is not what the log has at %d/%d: key %q", line, p, o, keys[o])
	}
	r.next[p] = o + 1
	r.got++
}

// read calls Next up to n times; true when it is idle.
func (r *reader) read(t *testing.T, n int, lim deliver.Limit) bool {
	t.Helper()
	for range n {
		switch ev := r.sub.Next(t.Context(), lim); ev.Kind {
		case deliver.Idle:
			return true
		case deliver.Messages:
			if ev.Run.Len() > lim.Messages {
				t.Fatalf("a run of %d messages, %d were asked for", ev.Run.Len(), lim.Messages)
			}
			joined := ""
			for i := range ev.Run.Len() {
				r.check(t, ev.Run.Partition(), ev.Run.Offset(i), ev.Run.Message(i))
				joined += "\n" + string(ev.Run.Message(i))
			}
			if string(ev.Run.Lines()) != joined {
				t.Fatalf("the run's lines are not its messages:\n%q\n%q", ev.Run.Lines(), joined)
			}
		case deliver.Lost:
			r.gap(t, ev.Gap)
		case deliver.Ended:
			t.Fatalf("the subscription ended: %v", ev.Err)
		}
	}
	return false
}

func (r *reader) gap(t *testing.T, g *deliver.Gap) {
	t.Helper()
	var p ident.Index
	var requested, earliest ident.Offset
	if _, err := fmt.Sscanf(g.Requested+" "+g.Earliest, "%d:%d %d:%d", &p, &requested, &p, &earliest); err != nil {
		t.Fatalf("gap %+v: %v", g, err)
	}
	keys, start := r.m.Keys(r.topic.Ref(p))
	if g.Reason == deliver.ReasonTruncated {
		resume := r.places(t, g.Cursor)[p]
		if !r.cut[p] || requested <= resume || requested < r.next[p] {
			t.Fatalf("gap %+v: the reader was at %d and goes on at %d", g, r.next[p], resume)
		}
		r.unseen(t, p, keys[:resume])
		r.next[p] = resume
		r.cut[p] = false
		r.cuts++
		return
	}
	if g.Reason != deliver.ReasonExpired || requested >= earliest || earliest > start || r.next[p] >= earliest {
		t.Fatalf("gap %+v: the reader was at %d, the log starts at %d", g, r.next[p], start)
	}
	r.next[p] = earliest
	r.gaps++
}

// places are the offsets in a cursor.
func (r *reader) places(t *testing.T, s string) map[ident.Index]ident.Offset {
	t.Helper()
	c, err := cursor.Parse(s)
	if err != nil {
		t.Fatalf("cursor %q: %v", s, err)
	}
	places := map[ident.Index]ident.Offset{}
	for _, p := range c.Places {
		places[p.Partition] = p.Offset
	}
	return places
}

// unseen fails if the reader has yet to see one of the records with these keys.
func (r *reader) unseen(t *testing.T, p ident.Index, keys []string) {
	t.Helper()
	for o := r.next[p]; o < ident.Offset(len(keys)); o++ {
		if r.wants(keys[o]) {
			t.Fatalf("the reader of %+v has passed offset %d of partition %d and not seen it", r.filter, o, p)
		}
	}
}

// stands checks the reader's cursor: it passes nothing that the reader has yet
// to see, whoever moved it.
func (r *reader) stands(t *testing.T) string {
	t.Helper()
	s := r.sub.Cursor()
	for p, o := range r.places(t, s) {
		keys, _ := r.m.Keys(r.topic.Ref(p))
		if r.cut[p] {
			continue // what it passed was another log
		}
		if o > ident.Offset(len(keys)) {
			t.Fatalf("the cursor is at %d of partition %d, which has %d", o, p, len(keys))
		}
		r.unseen(t, p, keys[:o])
	}
	return s
}

// TestReadersSeeExactlyTheirSliceOfTheLog runs random writers, retention, leader
// changes, cuts of the log and outages against readers of random pace, limits,
// filters and places to begin, over rings small enough that everybody falls
// behind.
func TestReadersSeeExactlyTheirSliceOfTheLog(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	var total, gaps, cuts int
	for i := range uint64(60) {
		seed := base + i
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			got, lost, cut := scenario(t, rand.New(rand.NewPCG(seed, 1)))
			total, gaps, cuts = total+got, gaps+lost, cuts+cut
		})
	}
	t.Logf("%d messages, %d gaps, %d cuts", total, gaps, cuts)
	if total < 1000 || gaps == 0 || cuts == 0 {
		t.Fatalf("%d messages, %d gaps and %d cuts exercise too little", total, gaps, cuts)
	}
}

func scenario(t *testing.T, rnd *rand.Rand) (got, gaps, cuts int) {
	m := memlog.New()
	topic := m.Topic("orders", 1+rnd.IntN(4))
	n := len(topic.Partitions)
	h := startHub(t, m, deliver.Config{RingBytes: 1 + rnd.IntN(4000)})
	keys := []string{"", "a", "ab", "b", "c", "ca"}
	write := func() {
		p := ident.Index(rnd.IntN(n))
		mine := []string{""} // a key lives in its own partition
		for _, k := range keys {
			if k != "" && ownerOf(topic, k) == p {
				mine = append(mine, k)
			}
		}
		var batch []string
		for range 1 + rnd.IntN(6) {
			batch = append(batch, mine[rnd.IntN(len(mine))])
		}
		if rnd.IntN(8) == 0 {
			batch = append(batch, memlog.Void)
		}
		m.Append(topic.Ref(p), batch...)
	}
	for range rnd.IntN(40) {
		write()
	}
	var readers []*reader
	join := func() {
		r := &reader{m: m, topic: topic, next: map[ident.Index]ident.Offset{}, cut: map[ident.Index]bool{}}
		switch rnd.IntN(6) {
		case 0, 1:
			r.filter.Keys = []string{keys[1+rnd.IntN(5)]}
		case 2:
			r.filter.Keys = []string{"a", "c", "x"}
		case 3:
			r.filter.KeyPrefix = []string{"a", "c", "ca"}[rnd.IntN(3)]
		case 4:
			r.filter.Partition = at(ident.Index(rnd.IntN(n)))
		}
		q := deliver.Request{Topic: topic, Filter: r.filter, From: []string{"earliest", "latest"}[rnd.IntN(2)]}
		if len(readers) > 0 && rnd.IntN(3) == 0 { // resume where another one stands
			other := readers[rnd.IntN(len(readers))]
			r.filter = other.filter
			q = deliver.Request{Topic: topic, Filter: r.filter, HasCursor: true, Cursor: other.stands(t)}
		}
		start := resolve(t, h, q)
		if start.Gap != nil { // of the other one, which has yet to hear of it
			return
		}
		for _, p := range start.Places {
			r.next[p.Partition] = p.Offset
		}
		r.sub = h.Subscribe(start, func() { r.notified.Store(true) })
		readers = append(readers, r)
	}
	for range 200 {
		switch rnd.IntN(14) {
		case 0, 1, 2, 3:
			write()
		case 4:
			if len(readers) < 8 {
				join()
			}
		case 5:
			ref := topic.Ref(ident.Index(rnd.IntN(n)))
			keys, start := m.Keys(ref)
			heard := !slices.ContainsFunc(readers, func(r *reader) bool { return r.cut[ref.Index] })
			if heard && len(keys) > int(start) { // of an epoch that retention took nothing is known
				m.Retain(ref, start+ident.Offset(rnd.IntN(len(keys)-int(start)+1)))
			}
		case 6:
			ref := topic.Ref(ident.Index(rnd.IntN(n)))
			m.Elect(ref, memlog.All)
			if rnd.IntN(2) == 0 {
				m.Serve(ref, false)
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				m.Serve(ref, true)
			}
		case 7:
			synctest.Wait()
		case 8:
			if len(readers) > 4 {
				k := rnd.IntN(len(readers))
				readers[k].sub.Close()
				got, gaps, cuts = got+readers[k].got, gaps+readers[k].gaps, cuts+readers[k].cuts
				readers = append(readers[:k], readers[k+1:]...)
			}
		case 9:
			if len(readers) > 0 {
				readers[rnd.IntN(len(readers))].stands(t)
			}
		case 10: // the log is cut, some of it perhaps after it was read
			if rnd.IntN(4) > 0 {
				continue
			}
			for _, r := range readers { // what is in hand would still be given
				for !r.read(t, 1000, deliver.Limit{Messages: 10, Bytes: 4000}) {
				}
			}
			for range rnd.IntN(4) {
				write()
			}
			if rnd.IntN(2) == 0 {
				synctest.Wait()
			}
			ref := topic.Ref(ident.Index(rnd.IntN(n)))
			keys, _ := m.Keys(ref)
			m.Elect(ref, ident.Offset(max(0, len(keys)-rnd.IntN(12))))
			time.Sleep(5 * time.Second) // a feed that waits for a leader holds the old log
			synctest.Wait()
			keys, _ = m.Keys(ref)
			for _, r := range readers {
				if o, ok := r.places(t, r.sub.Cursor())[ref.Index]; ok && o > ident.Offset(len(keys)) {
					r.cut[ref.Index] = true
				}
			}
		default:
			if len(readers) > 0 {
				readers[rnd.IntN(len(readers))].read(t, 1+rnd.IntN(6), deliver.Limit{Messages: 1 + rnd.IntN(4), Bytes: 1 + rnd.IntN(2000)})
			}
		}
	}
	for _, r := range readers {
		for range 1000 { // until all is read: an outage may ask for more time
			r.notified.Store(false)
			if r.read(t, 10_000, deliver.Limit{Messages: 10, Bytes: 4000}) {
				synctest.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				if !r.notified.Load() {
					break
				}
			}
		}
		r.stands(t)
		for p := range r.next {
			keys, _ := m.Keys(topic.Ref(p))
			r.unseen(t, p, keys)
		}
		got, gaps, cuts = got+r.got, gaps+r.gaps, cuts+r.cuts
		r.sub.Close()
	}
	return got, gaps, cuts
}

func ownerOf(t *cluster.Topic, key string) ident.Index {
	for _, p := range t.Partitions {
		if p.Range.Contains(ident.KeyHash(key)) {
			return p.Index
		}
	}
	panic("live partitions cover the hash space")
}
