package check

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

type valueID struct{ topic, value string }

type place struct {
	topic     string
	partition int
}

// identity is what the system may recognise a repeat by.
type identity struct {
	producer string // "": an Idempotency-Key
	sequence int64
}

// sent is all that is known of one record from the side of its producers.
type sent struct {
	key      string
	attempts int // all
	loose    int // attempts without idempotence that were not refused
	refused  int
	ids      []identity    // of the idempotent attempts
	invoked  time.Duration // of the first attempt
	ended    time.Duration // of the first acknowledgement; 0: none
	copies   int           // in the logs
}

// mayStand is how many copies the attempts can explain.
func (s *sent) mayStand() int { return len(s.ids) + s.loose }

// content is the log of a partition, by offset.
type content struct {
	Log
	sent []*sent // of each record; nil: nobody published it
	// elsewhere has the value of offsets that the log does not hold (any more),
	// as acknowledgements and readers told them.
	elsewhere map[int64]string
}

// at finds the record at an offset.
func (c *content) at(offset int64) (i int, found bool) {
	if i := offset - c.Start; i >= 0 && i < int64(len(c.Records)) && c.Records[i].Offset == offset {
		return int(i), true // a contiguous log, the usual case
	}
	i = sort.Search(len(c.Records), func(i int) bool { return c.Records[i].Offset >= offset })
	return i, i < len(c.Records) && c.Records[i].Offset == offset
}

// between gives the records with from <= offset < to.
func (c *content) between(from, to int64) []Record {
	i := sort.Search(len(c.Records), func(i int) bool { return c.Records[i].Offset >= from })
	k := sort.Search(len(c.Records), func(i int) bool { return c.Records[i].Offset >= to })
	return c.Records[i:max(i, k)]
}

// judge holds the indexes that the checks share.
type judge struct {
	h      *History
	report *Report
	sent   map[valueID]*sent
	logs   map[place]*content
	places []place // of logs, sorted
}

func newJudge(h *History) *judge {
	j := &judge{
		h:      h,
		report: &Report{},
		sent:   make(map[valueID]*sent, len(h.Ops)),
		logs:   make(map[place]*content, len(h.Logs)),
	}
	for i := range h.Ops {
		j.addOp(&h.Ops[i])
	}
	for i := range h.Logs {
		j.addLog(&h.Logs[i])
	}
	slices.SortFunc(j.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return j
}

func (j *judge) addLog(l *Log) {
	c := &content{Log: *l, elsewhere: map[int64]string{}}
	byOffset := func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) }
	if !slices.IsSortedFunc(c.Records, byOffset) {
		j.report.violate(Contiguous, "%s/%d is not in the order of its offsets", l.Topic, l.Partition)
		c.Records = slices.Clone(c.Records) // the history is not ours to sort
		slices.SortStableFunc(c.Records, byOffset)
	}
	c.sent = make([]*sent, len(c.Records))
	for i := range c.Records {
		c.sent[i] = j.sent[valueID{l.Topic, c.Records[i].Value}]
	}
	p := place{l.Topic, l.Partition}
	j.logs[p] = c
	j.places = append(j.places, p)
}

func (j *judge) addOp(op *Op) {
	c := &j.report.Counts
	c.Ops++
	id := valueID{op.Topic, op.Value}
	s := j.sent[id]
	if s == nil {
		s = &sent{key: op.Key, invoked: op.Invoked}
		j.sent[id] = s
		c.Values++
	}
	s.attempts++
	s.invoked = min(s.invoked, op.Invoked)
	switch op.Outcome {
	case Failed:
		c.Refused++
		s.refused++
		return // it explains no copy
	case OK:
		c.Acknowledged++
		if op.Duplicate {
			c.Duplicates++
		}
		if s.ended == 0 || op.Ended < s.ended {
			s.ended = op.Ended
		}
	default:
		c.Unknown++
	}
	if !op.Idempotent {
		s.loose++
		return
	}
	of := identity{op.Producer, op.Sequence}
	if !slices.Contains(s.ids, of) {
		s.ids = append(s.ids, of)
	}
}
