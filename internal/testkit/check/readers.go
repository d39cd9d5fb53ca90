package check

import (
	"slices"
	"strings"
)

type span struct{ from, to int64 }

// position is where a reader stands in one partition.
type position struct {
	next    int64 // what comes next if nothing is missing
	high    int64 // one past the highest offset seen
	holes   []span
	resumed bool // since the last record
}

// late takes an offset out of the holes, if it lies in one.
func (p *position) late(offset int64) bool {
	for i, h := range p.holes {
		if offset < h.from || offset >= h.to {
			continue
		}
		p.holes = slices.Delete(p.holes, i, i+1)
		if h.from < offset {
			p.holes = append(p.holes, span{h.from, offset})
		}
		if offset+1 < h.to {
			p.holes = append(p.holes, span{offset + 1, h.to})
		}
		return true
	}
	return false
}

// reading follows one reader through its events.
type reading struct {
	*judge
	of       *Reader
	at       map[int]*position
	lastSeen map[string]int64 // highest offset first seen of a key, which has one partition
}

func (j *judge) reader(of *Reader) {
	j.report.Counts.Readers++
	r := &reading{judge: j, of: of, at: map[int]*position{}, lastSeen: map[string]int64{}}
	for p, from := range of.From {
		r.at[p] = &position{next: from, high: from}
	}
	for i := range of.Events {
		switch e := &of.Events[i]; e.Kind {
		case Message:
			r.message(e)
		case Gap:
			r.gap(e)
		case Resume:
			j.report.Counts.Resumes++
			for _, p := range r.at {
				p.resumed = true
			}
		}
	}
	if of.Complete {
		r.complete()
	}
}

func (r *reading) message(e *Event) {
	r.report.Counts.Reads++
	r.genuine(e)
	p := r.at[e.Partition]
	if p == nil {
		p = &position{next: e.Offset, high: e.Offset}
		r.at[e.Partition] = p
	}
	if p.late(e.Offset) {
		// It was missed before, which was said then. Here only its key's order counts.
		if last, seen := r.lastSeen[e.Key]; e.Key != "" && seen && last > e.Offset {
			r.report.violate(KeyOrder, "%s: key %q offset %d of %s/%d came after offset %d", r.of.ID, e.Key, e.Offset, r.of.Topic, e.Partition, last)
		}
		p.resumed = false
		return
	}
	again := e.Offset < p.high
	switch {
	case again && r.of.Guarantee == ExactlyOnce:
		r.report.Counts.Rereads++
		r.report.violate(NoneRepeated, "%s: offset %d of %s/%d came again; exactly once was promised", r.of.ID, e.Offset, r.of.Topic, e.Partition)
		return
	case again && !p.resumed && e.Offset < p.next:
		r.report.Counts.Rereads++
		r.report.violate(NoneRepeated, "%s: offset %d of %s/%d came again without a resume", r.of.ID, e.Offset, r.of.Topic, e.Partition)
		return
	case again && p.resumed && e.Offset < p.next:
		r.report.Counts.Rereads++ // a resume may go back
	case e.Offset > p.next:
		r.skipped(p, e.Partition, e.Offset)
		if again {
			r.report.Counts.Rereads++
		}
	case again:
		r.report.Counts.Rereads++
	}
	p.resumed = false
	p.next = e.Offset + 1
	p.high = max(p.high, p.next)
	if e.Key != "" && !again {
		r.lastSeen[e.Key] = e.Offset
	}
}

// skipped judges a jump from p.next to offset.
func (r *reading) skipped(p *position, partition int, offset int64) {
	if missing, ok := r.missing(partition, p.next, offset); ok {
		r.report.violate(NoneSkipped, "%s: from offset %d to %d of %s/%d nothing was said of offset %d", r.of.ID, p.next, offset, r.of.Topic, partition, missing)
	}
	if offset > p.high {
		p.holes = append(p.holes, span{max(p.next, p.high), offset})
	}
}

// missing finds the first offset in [from, to) that the reader should have seen.
func (r *reading) missing(partition int, from, to int64) (int64, bool) {
	if from >= to {
		return 0, false
	}
	if len(r.of.Keys) == 0 && r.of.KeyPrefix == "" {
		return from, true
	}
	// What retention took is not known; a filtered reader is judged by the rest.
	c := r.log(partition)
	if c == nil {
		return 0, false
	}
	for _, rec := range c.between(from, to) {
		if r.selects(rec.Key) {
			return rec.Offset, true
		}
	}
	return 0, false
}

func (r *reading) selects(key string) bool {
	if len(r.of.Keys) > 0 {
		return slices.Contains(r.of.Keys, key)
	}
	return strings.HasPrefix(key, r.of.KeyPrefix)
}

func (r *reading) gap(e *Event) {
	r.report.Counts.Gaps++
	p := r.at[e.Partition]
	if p == nil {
		r.at[e.Partition] = &position{next: e.Offset, high: e.Offset}
		return
	}
	if e.Offset < p.next {
		r.report.violate(NoneSkipped, "%s: a gap of %s/%d leads back from offset %d to %d", r.of.ID, r.of.Topic, e.Partition, p.next, e.Offset)
		return
	}
	if c := r.log(e.Partition); c != nil {
		if missing, ok := r.missing(e.Partition, max(p.next, c.Start), e.Offset); ok {
			r.report.violate(NoneSkipped, "%s: a gap of %s/%d passes over offset %d, which is still kept", r.of.ID, r.of.Topic, e.Partition, missing)
		}
	}
	p.next, p.resumed = e.Offset, false
	p.high = max(p.high, e.Offset)
}

// genuine compares a record that was read with what was published and what stands.
func (r *reading) genuine(e *Event) {
	topic, id := r.of.Topic, r.of.ID
	c := r.log(e.Partition)
	var at int
	found := false
	if c != nil {
		at, found = c.at(e.Offset)
	}
	var s *sent
	if found && c.Records[at].Value == e.Value {
		s = c.sent[at]
	} else {
		s = r.sent[valueID{topic, e.Value}]
	}
	switch {
	case s == nil:
		r.report.violate(NothingInvented, "%s: offset %d of %s/%d holds %q, which nobody published", id, e.Offset, topic, e.Partition, e.Value)
	case s.key != e.Key:
		r.report.violate(NothingInvented, "%s: %q came under key %q, published under %q", id, e.Value, e.Key, s.key)
	case !r.selects(e.Key):
		r.report.violate(NothingInvented, "%s: offset %d of %s/%d with key %q was not asked for", id, e.Offset, topic, e.Partition, e.Key)
	case s.refused == s.attempts:
		r.report.violate(Refused, "%s: read %q, which was refused", id, e.Value)
	}
	switch {
	case c == nil:
		r.report.violate(NothingVanished, "%s: read offset %d of %s/%d; there is no log of that partition", id, e.Offset, topic, e.Partition)
	case e.Offset < c.Start:
		if other, told := c.elsewhere[e.Offset]; told && other != e.Value {
			r.report.violate(OneTruth, "%s: offset %d of %s/%d was read as %q, elsewhere it was %q", id, e.Offset, topic, e.Partition, e.Value, other)
		}
		c.elsewhere[e.Offset] = e.Value
	case !found:
		r.report.violate(NothingVanished, "%s: read %q at offset %d of %s/%d; the log is [%d,%d)", id, e.Value, e.Offset, topic, e.Partition, c.Start, c.End)
	case c.Records[at].Value != e.Value:
		r.report.violate(OneTruth, "%s: offset %d of %s/%d was read as %q, the log holds %q", id, e.Offset, topic, e.Partition, e.Value, c.Records[at].Value)
	}
}

// log is a partition of the reader's topic; nil: the history has none.
func (r *reading) log(partition int) *content { return r.logs[place{r.of.Topic, partition}] }

// complete wants a reader that read to the end to have seen the end.
func (r *reading) complete() {
	for _, at := range r.places {
		if at.topic != r.of.Topic || (r.of.Partitions != nil && !slices.Contains(r.of.Partitions, at.partition)) {
			continue
		}
		p := r.at[at.partition]
		if p == nil {
			continue
		}
		if missing, ok := r.missing(at.partition, p.next, r.logs[at].End); ok {
			r.report.violate(NoneSkipped, "%s: stopped at offset %d of %s/%d, before offset %d; the log ends at %d", r.of.ID, p.next, at.topic, at.partition, missing, r.logs[at].End)
		}
	}
}
