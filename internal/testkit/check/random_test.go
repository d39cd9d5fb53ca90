package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// truthful plays a system that keeps every promise under everything that may
// happen to its clients: refusals, lost answers, repeats, cut readers,
// retention. Its history must never be accused.
func truthful(rnd *rand.Rand) *History {
	const partitions = 3
	h := &History{}
	logs := make([]Log, partitions)
	for i := range logs {
		logs[i] = Log{Topic: "t", Partition: i}
	}
	place := map[string]int64{} // of idempotent values that are kept
	sequence := map[[2]int]int64{}
	now := time.Duration(0)
	tick := func() time.Duration { now += time.Duration(1 + rnd.IntN(1000)); return now }

	for n := range 150 + rnd.IntN(150) {
		client, keyed := rnd.IntN(4), rnd.IntN(4) > 0
		p := rnd.IntN(partitions)
		op := Op{Process: fmt.Sprint(client), Topic: "t", Value: fmt.Sprintf("v%d", n), Idempotent: rnd.IntN(2) == 0}
		if keyed {
			op.Key = fmt.Sprintf("k%d-%d", p, rnd.IntN(3))
		}
		if op.Idempotent && rnd.IntN(3) > 0 {
			op.Producer = fmt.Sprint("p", client)
			op.Sequence = sequence[[2]int{client, p}]
			sequence[[2]int{client, p}]++
		}
		for try := 0; ; try++ { // a client repeats what it is not sure of, or gives up
			op.Outcome, op.Offset, op.Duplicate, op.Ended = Unknown, NoOffset, false, 0
			op.Invoked = tick()
			fate := rnd.IntN(10)
			if fate == 0 && try == 0 {
				op.Outcome, op.Ended = Failed, tick()
				h.Ops = append(h.Ops, op)
				break
			}
			if fate != 1 { // it arrived
				offset, again := place[op.Value]
				if !again || !op.Idempotent {
					again = false
					offset = logs[p].End
					logs[p].End++
					logs[p].Records = append(logs[p].Records, Record{offset, op.Key, op.Value})
					place[op.Value] = offset
				}
				if fate != 2 { // and so did its answer
					op.Outcome, op.Partition, op.Offset, op.Duplicate, op.Ended = OK, p, offset, again, tick()
				}
			}
			h.Ops = append(h.Ops, op)
			if op.Outcome == OK || rnd.IntN(3) == 0 {
				break
			}
		}
	}
	for _, g := range []Guarantee{AtLeastOnce, ExactlyOnce} {
		for _, filtered := range []bool{false, true} {
			h.Readers = append(h.Readers, truthfulReader(rnd, logs, g, filtered))
		}
	}
	for i := range logs { // retention, after the readers went by
		drop := rnd.IntN(len(logs[i].Records)/2 + 1)
		logs[i].Records, logs[i].Start = logs[i].Records[drop:], int64(drop)
	}
	late := Reader{ID: "late", Topic: "t", From: map[int]int64{0: 0, 1: 0, 2: 0}, Complete: true}
	for _, l := range logs {
		if l.Start > 0 {
			late.Events = append(late.Events, Event{Kind: Gap, Partition: l.Partition, Offset: l.Start})
		}
		for _, r := range l.Records {
			late.Events = append(late.Events, Event{Partition: l.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
		}
	}
	h.Readers, h.Logs = append(h.Readers, late), logs
	return h
}

// truthfulReader reads all partitions in a random interleaving, with resumes.
func truthfulReader(rnd *rand.Rand, logs []Log, g Guarantee, filtered bool) Reader {
	r := Reader{ID: fmt.Sprint("reader ", g, filtered), Topic: "t", Guarantee: g, From: map[int]int64{}, Complete: true}
	if filtered {
		r.KeyPrefix = "k1-"
	}
	pick := &reading{of: &r}
	at := make([]int, len(logs))
	for i := range logs {
		at[i] = rnd.IntN(len(logs[i].Records) + 1)
		r.From[i] = int64(at[i])
	}
	for {
		var open []int
		for i := range logs {
			if at[i] < len(logs[i].Records) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return r
		}
		if rnd.IntN(20) == 0 {
			r.Events = append(r.Events, Event{Kind: Resume})
			for i := range logs {
				if g == AtLeastOnce && at[i] > int(r.From[i]) {
					at[i] = max(int(r.From[i]), at[i]-rnd.IntN(5))
				}
			}
		}
		i := open[rnd.IntN(len(open))]
		rec := logs[i].Records[at[i]]
		at[i]++
		if pick.selects(rec.Key) {
			r.Events = append(r.Events, Event{Partition: i, Offset: rec.Offset, Key: rec.Key, Value: rec.Value})
		}
	}
}

func TestATruthfulSystemIsNeverAccused(t *testing.T) {
	for seed := range uint64(400) {
		h := truthful(rand.New(rand.NewPCG(seed, 1)))
		if r := h.Check(); !r.OK() {
			t.Fatalf("seed %d:\n%s", seed, r)
		}
	}
}

// One lie in a truthful history is noticed, whatever and wherever it is.
func TestOneLieIsNoticed(t *testing.T) {
	lies := map[string]func(rnd *rand.Rand, h *History) bool{
		"an acknowledged record leaves the end of a log": func(rnd *rand.Rand, h *History) bool {
			l := &h.Logs[rnd.IntN(len(h.Logs))]
			if len(l.Records) == 0 {
				return false
			}
			l.End--
			l.Records = l.Records[:len(l.Records)-1]
			return true // the late reader saw it at least
		},
		"two neighbours change places": func(rnd *rand.Rand, h *History) bool {
			l := &h.Logs[rnd.IntN(len(h.Logs))]
			if len(l.Records) < 2 {
				return false
			}
			i := rnd.IntN(len(l.Records) - 1)
			a, b := &l.Records[i], &l.Records[i+1]
			a.Value, b.Value, a.Key, b.Key = b.Value, a.Value, b.Key, a.Key
			return a.Value != b.Value
		},
		"a reader misses a record": func(rnd *rand.Rand, h *History) bool {
			r := &h.Readers[len(h.Readers)-1]
			i := rnd.IntN(len(r.Events))
			if r.Events[i].Kind != Message {
				return false
			}
			r.Events = slices.Delete(r.Events, i, i+1)
			return true
		},
		"a reader sees a record twice": func(rnd *rand.Rand, h *History) bool {
			r := &h.Readers[rnd.IntN(len(h.Readers))]
			if len(r.Events) == 0 {
				return false
			}
			i := rnd.IntN(len(r.Events))
			if r.Events[i].Kind != Message {
				return false
			}
			r.Events = slices.Insert(r.Events, i, r.Events[i])
			return true
		},
		"an answer names another offset": func(rnd *rand.Rand, h *History) bool {
			op := &h.Ops[rnd.IntN(len(h.Ops))]
			if op.Outcome != OK || op.Offset < h.Logs[op.Partition].Start {
				return false
			}
			op.Offset++
			// A record that stands there as well is no lie.
			i := op.Offset - h.Logs[op.Partition].Start
			records := h.Logs[op.Partition].Records
			return i >= int64(len(records)) || records[i].Value != op.Value
		},
		"a record was refused after all": func(rnd *rand.Rand, h *History) bool {
			l := &h.Logs[rnd.IntN(len(h.Logs))]
			if len(l.Records) == 0 {
				return false
			}
			value := l.Records[rnd.IntN(len(l.Records))].Value
			for i := range h.Ops {
				if h.Ops[i].Value == value {
					h.Ops[i].Outcome = Failed
				}
			}
			return true
		},
		"a reader got other bytes": func(rnd *rand.Rand, h *History) bool {
			r := &h.Readers[rnd.IntN(len(h.Readers))]
			if len(r.Events) == 0 {
				return false
			}
			e := &r.Events[rnd.IntN(len(r.Events))]
			e.Value += "x"
			return e.Kind == Message
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			told := 0
			for seed := range uint64(200) {
				rnd := rand.New(rand.NewPCG(seed, 2))
				h := truthful(rnd)
				if !lie(rnd, h) {
					continue
				}
				told++
				if h.Check().OK() {
					t.Fatalf("seed %d: nothing was noticed", seed)
				}
			}
			if told < 50 {
				t.Errorf("only %d lies were told", told)
			}
		})
	}
}
