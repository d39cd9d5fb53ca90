package deliver_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tidewire/gateway/cursor"
	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// keyed is a subscription that counts how often it is woken.
type keyed struct {
	reader
	woken atomic.Int32
}

func subscribe(t *testing.T, h *deliver.Hub, m *memlog.Broker, topic *cluster.Topic, f deliver.Filter) *keyed {
	t.Helper()
	start := resolve(t, h, deliver.Request{Topic: topic, Filter: f, From: "latest"})
	k := &keyed{reader: reader{m: m, topic: topic, filter: f, next: map[ident.Index]ident.Offset{}, cut: map[ident.Index]bool{}}}
	for _, p := range start.Places {
		k.next[p.Partition] = p.Offset
	}
	k.sub = h.Subscribe(start, func() { k.woken.Add(1) })
	t.Cleanup(k.sub.Close)
	return k
}

// settle reads until there is nothing more, and forgets what woke it.
func (k *keyed) settle(t *testing.T) {
	t.Helper()
	for synctest.Wait(); ; synctest.Wait() {
		for !k.read(t, 100, deliver.Limit{Messages: 100, Bytes: 1 << 20}) {
		}
		if k.woken.Swap(0) == 0 {
			return
		}
	}
}

// TestARecordWakesThoseThatWantIt is what a message costs with ten thousand
// subscribers on keys of their own: one of them is looked at.
func TestARecordWakesThoseThatWantIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(7, 7))
		m := memlog.New()
		topic := m.Topic("orders", 4)
		h := startHub(t, m, deliver.Config{})
		key := func() string { return fmt.Sprintf("k%d", rnd.IntN(60)) }
		var subs []*keyed
		for i := range 300 {
			var f deliver.Filter
			switch i % 4 {
			case 0:
				f.Keys = []string{key()}
			case 1:
				f.Keys = []string{key(), key(), key()}
			case 2:
				f.KeyPrefix = key()[:1+rnd.IntN(2)]
			case 3:
				if i%20 == 3 {
					f.Partition = at(ident.Index(rnd.IntN(4)))
				} else {
					f.Keys = []string{key()}
				}
			}
			subs = append(subs, subscribe(t, h, m, topic, f))
		}
		for range 2 { // the feeds begin while they read
			for _, k := range subs {
				k.settle(t)
			}
		}
		looked, wanted := 0, 0
		for range 300 {
			record := ""
			if rnd.IntN(6) > 0 {
				record = key()
			}
			p := ident.Index(rnd.IntN(4))
			if record != "" {
				p = ownerOf(topic, record)
			}
			m.Append(topic.Ref(p), record)
			synctest.Wait()
			for _, k := range subs {
				_, reads := k.next[p]
				want := int32(0)
				if reads && k.wants(record) {
					want = 1
				}
				if n := k.woken.Load(); n != want {
					t.Fatalf("a record of key %q in partition %d wakes a reader of %+v %d times", record, p, k.filter, n)
				}
				looked, wanted = looked+1, wanted+int(want)
				if before := k.got; want == 1 {
					if k.settle(t); k.got != before+1 {
						t.Fatalf("%d messages", k.got-before)
					}
				}
			}
		}
		if wanted == 0 || wanted > looked/4 {
			t.Fatalf("%d of %d were woken", wanted, looked)
		}
	})
}

// TestACursorMovesWithWhatAFilterKeepsBack: a reader that is not woken stands at
// the end all the same, for retention follows.
func TestACursorMovesWithWhatAFilterKeepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 2)
		ref := topic.Ref(ownerOf(topic, "mine"))
		h := startHub(t, m, deliver.Config{})
		for _, f := range []deliver.Filter{{Keys: []string{"mine"}}, {Keys: []string{"mine", "yours"}}, {KeyPrefix: "mi"}} {
			k := subscribe(t, h, m, topic, f)
			k.settle(t)
			place := func() cursor.Place {
				c, err := cursor.Parse(k.sub.Cursor())
				if err != nil {
					t.Fatal(err)
				}
				p, _ := c.Place(ref.Index)
				return p
			}
			began := place()
			for range 50 {
				m.Append(ref, "other", "")
			}
			m.Elect(ref, memlog.All) // an epoch without a record is no place to stand in
			for range 50 {
				m.Append(ref, "")
			}
			synctest.Wait()
			if k.woken.Load() > 0 || k.sub.Moved() {
				t.Fatalf("%+v: woken %d times, moved: %v", f, k.woken.Load(), k.sub.Moved())
			}
			if k.sub.Behind() != 0 {
				t.Fatalf("%+v: %d behind what it does not want", f, k.sub.Behind())
			}
			if k.sub.Refresh(); !k.sub.Moved() {
				t.Fatalf("%+v: nobody hears that it has moved", f)
			}
			if p := place(); p.Offset != began.Offset+150 || p.Epoch != began.Epoch+1 {
				t.Fatalf("%+v: from %+v to %+v", f, began, p)
			}
			if k.sub.Moved() {
				t.Fatalf("%+v: told, and still it has moved", f)
			}
			// Behind the records that were passed over there is nothing to miss.
			m.Retain(ref, began.Offset+150)
			again := resolve(t, h, deliver.Request{Topic: topic, Filter: f, HasCursor: true, Cursor: k.sub.Cursor()})
			if again.Gap != nil || !again.Recovered {
				t.Fatalf("%+v: %+v", f, again.Gap)
			}
			m.Append(ref, "mine")
			if k.settle(t); k.got != 1 || k.gaps > 0 {
				t.Fatalf("%+v: %d messages, %d gaps", f, k.got, k.gaps)
			}
		}
	})
}

// TestAReaderThatIsWokenAndComesLateMissesNothing: what it was woken for has left
// the ring by the time it looks.
func TestAReaderThatIsWokenAndComesLateMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{RingBytes: 1}) // the newest block alone
		k := subscribe(t, h, m, topic, deliver.Filter{Keys: []string{"mine"}})
		k.settle(t)
		for range 3 {
			for range 20 {
				m.Append(topic.Ref(0), "other")
				synctest.Wait() // a block each
			}
			m.Append(topic.Ref(0), "mine")
			synctest.Wait()
		}
		m.Append(topic.Ref(0), "other")
		synctest.Wait()
		if n := k.woken.Load(); n != 1 {
			t.Fatalf("woken %d times", n)
		}
		before := m.Reads()
		if k.settle(t); k.got != 3 {
			t.Fatalf("%d messages", k.got)
		}
		if n := m.Reads() - before; n > 2 {
			t.Errorf("%d reads of the log", n)
		}
	})
}

// TestAParkedReaderHearsThatWhatItPassedWasCut: nobody woke it for the records,
// and its cursor may have been told all the same.
func TestAParkedReaderHearsThatWhatItPassedWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{})
		k := subscribe(t, h, m, topic, deliver.Filter{Keys: []string{"mine"}})
		k.settle(t)
		for range 10 {
			m.Append(topic.Ref(0), "other")
			synctest.Wait()
		}
		m.Elect(topic.Ref(0), 6)
		for range 10 {
			m.Append(topic.Ref(0), "mine")
		}
		synctest.Wait()
		ev := k.sub.Next(t.Context(), deliver.Limit{Messages: 100, Bytes: 1 << 20})
		if ev.Kind != deliver.Lost || ev.Gap.Reason != deliver.ReasonTruncated || ev.Gap.Requested != "0:10" {
			t.Fatalf("%+v", ev)
		}
		k.next[0] = 6
		if k.settle(t); k.got != 10 {
			t.Fatalf("%d messages", k.got)
		}
	})
}

// TestReadersComeAndGoWhileRecordsDo is for the race detector.
func TestReadersComeAndGoWhileRecordsDo(t *testing.T) {
	m := memlog.New()
	topic := m.Topic("orders", 2)
	h := startHub(t, m, deliver.Config{RingBytes: 2000})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 3))
			lim := deliver.Limit{Messages: 10, Bytes: 1000}
			for range 40 {
				var f deliver.Filter
				switch rnd.IntN(4) {
				case 0:
					f.Keys = []string{fmt.Sprint("k", rnd.IntN(4))}
				case 1:
					f.Keys = []string{"k0", "k1", "k2"}
				case 2:
					f.KeyPrefix = "k"
				}
				start, err := h.Resolve(t.Context(), deliver.Request{Topic: topic, Filter: f, From: "latest"})
				if err != nil {
					t.Error(err)
					return
				}
				sub := h.Subscribe(start, func() {})
				for seen := 0; seen < 3; {
					switch ev := sub.Next(t.Context(), lim); ev.Kind {
					case deliver.Messages:
						seen += ev.Run.Len()
					case deliver.Idle:
						sub.Refresh()
						sub.Cursor()
						sub.Behind()
						p := ident.Index(rnd.IntN(2))
						for _, key := range []string{"", "k0", "k1", "k2", "k3"} {
							if key == "" || ownerOf(topic, key) == p {
								m.Append(topic.Ref(p), key)
							}
						}
					}
				}
				sub.Close()
			}
		})
	}
	all.Wait()
}
