package check

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// history is a good one to spoil: 24 records of 4 keys in 2 partitions of the
// topic "t", published one after the other by an idempotent producer "p" with
// a sequence for each partition, and one reader of each guarantee that saw all.
func history() *History {
	h := &History{Logs: []Log{{Topic: "t", Partition: 0}, {Topic: "t", Partition: 1}}}
	var events []Event
	for i := range 24 {
		partition, offset := i%2, int64(i/2)
		key, value := fmt.Sprintf("k%d", i%4), fmt.Sprintf("v%d", i)
		h.Ops = append(h.Ops, Op{
			Process: "c", Topic: "t", Key: key, Value: value,
			Invoked: time.Duration(2*i+1) * time.Millisecond, Ended: time.Duration(2*i+2) * time.Millisecond,
			Idempotent: true, Producer: "p" + key, Sequence: offset,
			Outcome: OK, Partition: partition, Offset: offset,
		})
		l := &h.Logs[partition]
		l.Records = append(l.Records, Record{Offset: offset, Key: key, Value: value})
		l.End = offset + 1
		events = append(events, Event{Partition: partition, Offset: offset, Key: key, Value: value})
	}
	from := map[int]int64{0: 0, 1: 0}
	h.Readers = []Reader{
		{ID: "sse", Topic: "t", From: from, Complete: true, Events: append([]Event(nil), events...)},
		{ID: "ws", Topic: "t", From: from, Complete: true, Guarantee: ExactlyOnce, Events: append([]Event(nil), events...)},
	}
	return h
}

// op finds the operation on a value.
func (h *History) op(value string) *Op {
	for i := range h.Ops {
		if h.Ops[i].Value == value {
			return &h.Ops[i]
		}
	}
	panic("no such value " + value)
}

// readersOff leaves the logs alone with the publishers.
func (h *History) readersOff() { h.Readers = nil }

// cutEnd takes the last n records off a partition's log.
func (h *History) cutEnd(partition, n int) {
	l := &h.Logs[partition]
	l.Records = l.Records[:len(l.Records)-n]
	l.End -= int64(n)
}

// trim lets retention take the first n records of a partition.
func (h *History) trim(partition, n int) {
	l := &h.Logs[partition]
	l.Records = l.Records[n:]
	l.Start += int64(n)
}

// add appends a record to a partition's log.
func (h *History) add(partition int, key, value string) int64 {
	l := &h.Logs[partition]
	l.Records = append(l.Records, Record{Offset: l.End, Key: key, Value: value})
	l.End++
	return l.End - 1
}

// drop takes the event of a partition's offset out of a reader's notes and returns its place.
func (r *Reader) drop(partition int, offset int64) int {
	i := r.find(partition, offset)
	r.Events = append(r.Events[:i:i], r.Events[i+1:]...)
	return i
}

func (r *Reader) find(partition int, offset int64) int {
	for i, e := range r.Events {
		if e.Kind == Message && e.Partition == partition && e.Offset == offset {
			return i
		}
	}
	panic("no such event")
}

func (r *Reader) insert(i int, events ...Event) {
	r.Events = append(r.Events[:i:i], append(events, r.Events[i:]...)...)
}

func TestAGoodHistoryBreaksNothing(t *testing.T) {
	r := history().Check()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	want := Counts{Ops: 24, Acknowledged: 24, Values: 24, Logs: 2, Records: 24, Readers: 2, Reads: 48}
	if r.Counts != want {
		t.Errorf("counts %+v, want %+v", r.Counts, want)
	}
	if n := strings.Count(r.String(), "  ok  "); n != int(numPromises) {
		t.Errorf("the report names %d kept promises of %d:\n%s", n, numPromises, r)
	}
}

// Each history below is spoilt in one way. want lists what must be found, how
// often; a promise that is not in it must be kept.
func TestEachPromise(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(h *History)
		want  map[Promise]int
	}{
		{"an acknowledged record at the end is lost", func(h *History) {
			h.readersOff()
			h.cutEnd(0, 2)
		}, map[Promise]int{Kept: 2}},
		{"a lost record whose outcome was unknown is no loss", func(h *History) {
			h.readersOff()
			h.cutEnd(0, 1)
			h.op("v22").Outcome = Unknown
		}, nil},
		{"a present record whose outcome was unknown is fine", func(h *History) {
			h.op("v22").Outcome = Unknown
			h.op("v22").Ended = 0
		}, nil},
		{"an acknowledged record that retention took is no loss", func(h *History) {
			h.readersOff()
			h.trim(0, 3)
		}, nil},
		{"an acknowledged record stands elsewhere", func(h *History) {
			h.op("v4").Offset, h.op("v6").Offset = 3, 2
		}, map[Promise]int{Kept: 2}},
		{"an acknowledged partition has no log", func(h *History) {
			h.readersOff()
			h.Logs = h.Logs[:1]
		}, map[Promise]int{Kept: 12}},
		{"a repeat without offset whose record is gone", func(h *History) {
			h.readersOff()
			h.cutEnd(0, 1)
			h.op("v22").Offset, h.op("v22").Duplicate = NoOffset, true
		}, map[Promise]int{Kept: 1}},
		{"a repeat without offset whose record stands", func(h *History) {
			h.op("v22").Offset, h.op("v22").Duplicate = NoOffset, true
		}, nil},
		{"a repeat answered with another place", func(h *History) {
			again := *h.op("v4")
			again.Duplicate, again.Offset = true, 3
			again.Invoked, again.Ended = time.Second, 2*time.Second
			h.Ops = append(h.Ops, again)
		}, map[Promise]int{Kept: 1, OneTruth: 1}},
		{"a repeat answered with the first place", func(h *History) {
			again := *h.op("v4")
			again.Duplicate = true
			again.Invoked, again.Ended = time.Second, 2*time.Second
			h.Ops = append(h.Ops, again)
		}, nil},

		{"a refused record is present and read", func(h *History) {
			h.op("v22").Outcome = Failed
		}, map[Promise]int{Refused: 3}},
		{"a refused record that a later attempt published", func(h *History) {
			first := *h.op("v22")
			first.Outcome = Failed
			h.Ops = append(h.Ops, first)
		}, nil},
		{"a refused record is absent", func(h *History) {
			h.Ops = append(h.Ops, Op{Topic: "t", Value: "no", Outcome: Failed, Invoked: 1, Ended: 2})
		}, nil},

		{"two acknowledgements name one offset", func(h *History) {
			h.readersOff()
			h.trim(0, 3)
			h.op("v2").Offset = 0
		}, map[Promise]int{OneTruth: 1}},
		{"a log holds two records at one offset", func(h *History) {
			h.readersOff()
			l := &h.Logs[0]
			h.Ops = append(h.Ops, Op{Topic: "t", Key: "k0", Value: "twin"})
			l.Records = append(l.Records, Record{Offset: l.End - 1, Key: "k0", Value: "twin"})
		}, map[Promise]int{OneTruth: 1}},
		{"a reader saw another record than the log holds", func(h *History) {
			e := &h.Readers[0].Events[h.Readers[0].find(0, 4)]
			e.Value = "v0" // same key
		}, map[Promise]int{OneTruth: 1}},
		{"two readers saw two records at an offset that retention took", func(h *History) {
			h.trim(0, 6)
			h.op("v8").Outcome = Unknown // nobody was told the offset
			e := &h.Readers[0].Events[h.Readers[0].find(0, 4)]
			e.Value = "v0"
		}, map[Promise]int{OneTruth: 1}},
		{"a reader saw another record than was acknowledged there, now trimmed", func(h *History) {
			h.trim(0, 6)
			e := &h.Readers[0].Events[h.Readers[0].find(0, 4)]
			e.Value = "v0"
		}, map[Promise]int{OneTruth: 2}}, // the other reader saw the right one

		{"an offset is missing in the middle", func(h *History) {
			h.readersOff()
			h.op("v8").Outcome = Unknown
			l := &h.Logs[0]
			l.Records = append(l.Records[:4:4], l.Records[5:]...)
		}, map[Promise]int{Contiguous: 1}},
		{"an offset comes twice with the same record", func(h *History) {
			h.readersOff()
			l := &h.Logs[0]
			h.op("v8").Idempotent = false
			again := *h.op("v8")
			again.Outcome = Unknown // its second attempt explains a copy, not a second place
			h.Ops = append(h.Ops, again)
			l.Records = append(l.Records[:5:5], l.Records[4:]...)
		}, map[Promise]int{Contiguous: 1}},
		{"a log is out of order", func(h *History) {
			l := &h.Logs[0]
			l.Records[4], l.Records[5] = l.Records[5], l.Records[4]
		}, map[Promise]int{Contiguous: 1}},
		{"a log ends before its high watermark", func(h *History) {
			h.readersOff()
			h.Logs[1].End++
		}, map[Promise]int{Contiguous: 1}},
		{"an empty log that begins where retention left it", func(h *History) {
			h.readersOff()
			h.trim(1, 12)
		}, nil},

		{"an idempotent record stands twice", func(h *History) {
			h.readersOff()
			h.add(0, "k0", "v0")
			again := *h.op("v0")
			again.Outcome = Unknown
			h.Ops = append(h.Ops, again)
		}, map[Promise]int{OneCopy: 1, ProducerOrder: 1}},
		{"a record by Idempotency-Key stands twice", func(h *History) {
			h.readersOff()
			h.op("v20").Producer = ""
			h.add(0, "k0", "v20")
			again := *h.op("v20")
			again.Outcome = Unknown
			h.Ops = append(h.Ops, again)
		}, map[Promise]int{OneCopy: 1}},
		{"a record without idempotence that was sent twice stands twice", func(h *History) {
			h.readersOff()
			h.op("v22").Idempotent = false
			h.add(0, "k2", "v22")
			again := *h.op("v22")
			again.Outcome = Unknown
			h.Ops = append(h.Ops, again)
		}, nil},
		{"a record without idempotence that was sent once stands twice", func(h *History) {
			h.readersOff()
			h.op("v22").Idempotent = false
			h.add(0, "k2", "v22")
		}, map[Promise]int{OneCopy: 1}},
		{"a refused attempt explains no copy", func(h *History) {
			h.readersOff()
			h.op("v22").Idempotent = false
			h.add(0, "k2", "v22")
			again := *h.op("v22")
			again.Outcome = Failed
			h.Ops = append(h.Ops, again)
		}, map[Promise]int{OneCopy: 1}},
		{"a record sent again by the producer's next life may stand twice", func(h *History) {
			h.readersOff()
			h.add(0, "k2", "v22")
			again := *h.op("v22")
			again.Producer, again.Sequence, again.Outcome = "next life", 0, Unknown
			h.Ops = append(h.Ops, again)
		}, nil},

		{"a producer's sequences are out of order", func(h *History) {
			h.op("v4").Sequence, h.op("v8").Sequence = 8, 4
		}, map[Promise]int{ProducerOrder: 1}},
		{"a sequence that was used up leaves a hole", func(h *History) {
			h.op("v20").Sequence = 100
		}, nil},

		{"a record stands before one acknowledged earlier", func(h *History) {
			// v4 stands before v8, and was sent after v8 was acknowledged.
			h.op("v4").Invoked, h.op("v4").Ended = time.Second, 2*time.Second
			h.op("v6").Invoked = 0 // its neighbours overlap it
			for _, v := range []string{"v6", "v10", "v12", "v14", "v16", "v18", "v20", "v22"} {
				h.op(v).Ended = 3 * time.Second
			}
		}, map[Promise]int{TimeOrder: 1}},
		{"overlapping operations may stand either way", func(h *History) {
			h.op("v8").Ended = 2 * time.Second
			h.op("v4").Invoked, h.op("v4").Ended = time.Second, 2*time.Second
			for _, v := range []string{"v6", "v10", "v12", "v14", "v16", "v18", "v20", "v22"} {
				h.op(v).Ended = 3 * time.Second
			}
		}, nil},

		{"a key is in two partitions", func(h *History) {
			h.readersOff()
			h.Ops = append(h.Ops, Op{Topic: "t", Key: "k1", Value: "stray"})
			h.add(0, "k1", "stray")
		}, map[Promise]int{KeyPlace: 1}},
		{"records without key are in two partitions", func(h *History) {
			h.readersOff()
			h.Ops = append(h.Ops, Op{Topic: "t", Value: "a"}, Op{Topic: "t", Value: "b"})
			h.add(0, "", "a")
			h.add(1, "", "b")
		}, nil},

		{"a reader sees a key's records out of order", func(h *History) {
			r := &h.Readers[0]
			e := r.Events[r.find(0, 2)] // k0
			r.drop(0, 2)
			r.insert(r.find(0, 4)+1, e) // behind the next of k0
		}, map[Promise]int{KeyOrder: 1, NoneSkipped: 1}},
		{"a reader sees records of two keys out of order", func(h *History) {
			r := &h.Readers[0]
			e := r.Events[r.find(0, 2)]
			r.drop(0, 2)
			r.insert(r.find(0, 3)+1, e) // behind one of k2
		}, map[Promise]int{NoneSkipped: 1}},
		{"partitions may be read in any interleaving", func(h *History) {
			r := &h.Readers[1]
			var first, second []Event
			for _, e := range r.Events {
				if e.Partition == 0 {
					first = append(first, e)
				} else {
					second = append(second, e)
				}
			}
			r.Events = append(second, first...)
		}, nil},

		{"a reader skips a record", func(h *History) {
			h.Readers[0].drop(1, 5)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader skips over a resume", func(h *History) {
			r := &h.Readers[1]
			r.insert(r.drop(1, 5), Event{Kind: Resume})
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader begins late", func(h *History) {
			h.Readers[0].drop(1, 0)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader that said nothing of its start begins anywhere", func(h *History) {
			h.Readers[0].drop(1, 0)
			h.Readers[0].From = nil
		}, nil},
		{"a reader that was to read all stops early", func(h *History) {
			h.Readers[0].drop(1, 11)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader that was cut off stops anywhere", func(h *History) {
			h.Readers[0].drop(1, 11)
			h.Readers[0].Complete = false
		}, nil},
		{"a reader is told of a gap that retention made", func(h *History) {
			h.trim(0, 4)
			r := &h.Readers[0]
			r.insert(r.drop(0, 2), Event{Kind: Gap, Partition: 0, Offset: 4})
			r.drop(0, 3)
		}, nil},
		{"a gap passes over a record that is kept", func(h *History) {
			h.trim(0, 3)
			r := &h.Readers[0]
			r.insert(r.drop(0, 2), Event{Kind: Gap, Partition: 0, Offset: 4})
			r.drop(0, 3)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a gap leads back", func(h *History) {
			r := &h.Readers[0]
			r.insert(r.find(0, 6), Event{Kind: Gap, Partition: 0, Offset: 4})
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader of one key sees that key alone", func(h *History) {
			h.Readers = append(h.Readers, only(h, Reader{ID: "key", Topic: "t", Keys: []string{"k2"}, From: map[int]int64{0: 0, 1: 0}, Complete: true}))
		}, nil},
		{"a reader of one key misses one", func(h *History) {
			r := only(h, Reader{ID: "key", Topic: "t", Keys: []string{"k2"}, From: map[int]int64{0: 0}, Complete: true})
			r.drop(0, 5)
			h.Readers = append(h.Readers, r)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader of one key misses the last", func(h *History) {
			r := only(h, Reader{ID: "key", Topic: "t", Keys: []string{"k2"}, From: map[int]int64{0: 0}, Complete: true})
			r.drop(0, 11)
			h.Readers = append(h.Readers, r)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader of a key prefix misses one", func(h *History) {
			r := only(h, Reader{ID: "prefix", Topic: "t", KeyPrefix: "k", From: map[int]int64{0: 0, 1: 0}, Complete: true})
			r.drop(0, 5)
			h.Readers = append(h.Readers, r)
		}, map[Promise]int{NoneSkipped: 1}},
		{"a reader of one partition says nothing of the other", func(h *History) {
			r := Reader{ID: "one", Topic: "t", Partitions: []int{0}, From: map[int]int64{0: 0, 1: 0}, Complete: true}
			for _, e := range h.Readers[0].Events {
				if e.Partition == 0 {
					r.Events = append(r.Events, e)
				}
			}
			h.Readers = append(h.Readers, r)
		}, nil},

		{"a record comes again without a resume", func(h *History) {
			r := &h.Readers[0]
			i := r.find(0, 5)
			r.insert(i, r.Events[i])
		}, map[Promise]int{NoneRepeated: 1}},
		{"records come again after a resume, at least once", func(h *History) {
			r := &h.Readers[0]
			i := r.find(0, 5) + 1
			r.insert(i, Event{Kind: Resume}, r.Events[r.find(0, 4)], r.Events[r.find(0, 5)])
		}, nil},
		{"a reader that went back skips on the way forward", func(h *History) {
			r := &h.Readers[0]
			i := r.find(0, 5) + 1
			r.insert(i, Event{Kind: Resume}, r.Events[r.find(0, 2)], r.Events[r.find(0, 5)])
		}, map[Promise]int{NoneSkipped: 1}},
		{"a record comes again after a resume, exactly once", func(h *History) {
			r := &h.Readers[1]
			i := r.find(0, 5) + 1
			r.insert(i, Event{Kind: Resume}, r.Events[r.find(0, 5)])
		}, map[Promise]int{NoneRepeated: 1}},
		{"a resume that goes on where it was, exactly once", func(h *History) {
			r := &h.Readers[1]
			r.insert(r.find(0, 5)+1, Event{Kind: Resume})
		}, nil},

		{"a log holds what nobody published", func(h *History) {
			h.readersOff()
			h.add(0, "k0", "from nowhere")
		}, map[Promise]int{NothingInvented: 1}},
		{"a log holds a record of another topic", func(h *History) {
			h.readersOff()
			h.op("v22").Topic, h.op("v22").Outcome = "other", Unknown
		}, map[Promise]int{NothingInvented: 1}},
		{"a log holds a record under another key", func(h *History) {
			h.readersOff()
			h.Logs[0].Records[5].Key = "k0"
		}, map[Promise]int{NothingInvented: 1}},
		{"a reader saw what nobody published", func(h *History) {
			r := &h.Readers[0]
			r.Events[r.find(0, 5)].Value = "from nowhere"
		}, map[Promise]int{NothingInvented: 1, OneTruth: 1}},
		{"a reader of one key saw another", func(h *History) {
			h.Readers[0].Keys = []string{"k0", "k1", "k2"}
		}, map[Promise]int{NothingInvented: 6}},

		{"what a reader saw at the end is gone", func(h *History) {
			h.cutEnd(0, 1)
			h.op("v22").Outcome = Unknown
		}, map[Promise]int{NothingVanished: 2}},
		{"what a reader saw before the log start is retention's", func(h *History) {
			h.trim(0, 12)
		}, nil},
	}
	flagged, cleared := map[Promise]bool{}, 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := history()
			c.spoil(h)
			r := h.Check()
			for _, p := range Promises() {
				if r.Broken(p) != c.want[p] {
					t.Errorf("%s broken %d times, want %d", p, r.Broken(p), c.want[p])
				}
			}
			if (r.Err() == nil) != (len(c.want) == 0) {
				t.Errorf("Err() = %v", r.Err())
			}
			if t.Failed() {
				t.Log(r)
			}
		})
		for p := range c.want {
			flagged[p] = true
		}
		if len(c.want) == 0 {
			cleared++
		}
	}
	for _, p := range Promises() {
		if !flagged[p] {
			t.Errorf("no history breaks %s", p)
		}
	}
	t.Logf("%d bad histories, %d near misses", len(cases)-cleared, cleared)
}

// only fills a reader with those records of the first reader that it selects.
func only(h *History, r Reader) Reader {
	pick := &reading{of: &r}
	for _, e := range h.Readers[0].Events {
		if pick.selects(e.Key) {
			r.Events = append(r.Events, e)
		}
	}
	return r
}
