package check

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A toy system: one log behind a mutex, with publishers and a reader.
func TestRecorderGathersFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := NewRecorder()
		var mu sync.Mutex
		log := Log{Topic: "t"}
		var wg sync.WaitGroup
		for p := range 8 {
			wg.Go(func() {
				for i := range 50 {
					value := fmt.Sprintf("%d-%d", p, i)
					pending := rec.Invoke(Op{Process: fmt.Sprint(p), Topic: "t", Key: fmt.Sprint(p), Value: value})
					time.Sleep(time.Millisecond)
					switch i % 10 {
					case 3:
						pending.Fail("throttled")
						continue
					case 5:
						pending.Unknown("connection cut")
						continue
					}
					mu.Lock()
					offset := log.End
					log.Records = append(log.Records, Record{offset, fmt.Sprint(p), value})
					log.End++
					mu.Unlock()
					pending.OK(0, offset, false)
				}
			})
		}
		wg.Wait()
		tape := rec.Reader(Reader{ID: "r", Topic: "t", From: map[int]int64{0: 0}, Guarantee: ExactlyOnce})
		for i, r := range log.Records {
			if i == 100 {
				tape.Resume()
			}
			tape.Message(0, r.Offset, r.Key, r.Value)
		}
		tape.Complete()
		rec.Log(log)

		h := rec.History()
		r := h.Check()
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if c := r.Counts; c.Acknowledged != 320 || c.Refused != 40 || c.Unknown != 40 || c.Reads != 320 || c.Resumes != 1 || tape.Count() != 320 {
			t.Errorf("counts %+v, tape %d", c, tape.Count())
		}
		for _, op := range h.Ops {
			if op.Ended-op.Invoked != time.Millisecond {
				t.Fatalf("operation took %s", op.Ended-op.Invoked)
			}
		}
	})
}

func TestAnOperationThatNeverEndsIsUnknown(t *testing.T) {
	rec := NewRecorder()
	rec.Invoke(Op{Topic: "t", Value: "v", Outcome: OK, Offset: 7})
	rec.Log(Log{Topic: "t"})
	r := rec.History().Check()
	if err := r.Err(); err != nil || r.Counts.Unknown != 1 {
		t.Fatalf("unknown %d, %v", r.Counts.Unknown, err)
	}
}

func TestASavedHistoryIsJudgedAlike(t *testing.T) {
	h := history()
	h.Readers[0].drop(1, 5)
	h.op("v4").Error = "why"
	path := filepath.Join(t.TempDir(), "history.json")
	if err := h.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, loaded) {
		t.Error("the loaded history is another")
	}
	if got, want := loaded.Check().String(), h.Check().String(); got != want {
		t.Errorf("judged\n%s\nwant\n%s", got, want)
	}
}

func TestTheReportCountsWhatItDoesNotShow(t *testing.T) {
	h := history()
	h.readersOff()
	h.cutEnd(0, 12)
	text := h.Check().String()
	if !strings.Contains(text, "BROKEN  kept: 12") || !strings.Contains(text, "and 2 more") {
		t.Error(text)
	}
}

// large is a good history of n records, 64 partitions and two readers.
func large(n int) *History {
	const partitions = 64
	h := &History{Ops: make([]Op, 0, n), Logs: make([]Log, partitions)}
	events := make([]Event, 0, n)
	for i := range partitions {
		h.Logs[i] = Log{Topic: "t", Partition: i}
	}
	for i := range n {
		p, offset := i%partitions, int64(i/partitions)
		key, value := fmt.Sprintf("key-%d", i%(partitions*16)), fmt.Sprintf("value-%d", i)
		h.Ops = append(h.Ops, Op{
			Topic: "t", Key: key, Value: value, Idempotent: true, Producer: "p", Sequence: offset,
			Invoked: time.Duration(2*i + 1), Ended: time.Duration(2*i + 2), Outcome: OK, Partition: p, Offset: offset,
		})
		l := &h.Logs[p]
		l.Records = append(l.Records, Record{offset, key, value})
		l.End = offset + 1
		events = append(events, Event{Partition: p, Offset: offset, Key: key, Value: value})
	}
	h.Readers = []Reader{
		{ID: "a", Topic: "t", Events: events, Complete: true},
		{ID: "b", Topic: "t", Events: events, Complete: true, Guarantee: ExactlyOnce},
	}
	return h
}

func TestALargeHistoryIsJudgedInSeconds(t *testing.T) {
	h := large(200_000)
	started := time.Now()
	if err := h.Check().Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("200,000 operations and 400,000 reads in %s", time.Since(started).Round(time.Millisecond))
}

func BenchmarkMillionOperations(b *testing.B) {
	h := large(1_000_000)
	for b.Loop() {
		if err := h.Check().Err(); err != nil {
			b.Fatal(err)
		}
	}
}
