package check

import "time"

// contents looks at the logs by themselves: offsets, origin and key of each
// record. It counts the copies that the other checks need.
func (j *judge) contents() {
	type keyID struct{ topic, key string }
	const said = -1 // once a key is enough
	home := map[keyID]int{}
	r := j.report
	for _, p := range j.places {
		l := j.logs[p]
		r.Counts.Logs++
		next := l.Start
		for k, rec := range l.Records {
			r.Counts.Records++
			switch {
			case k > 0 && rec.Offset == l.Records[k-1].Offset:
				if rec.Value != l.Records[k-1].Value {
					r.violate(OneTruth, "%s/%d offset %d holds %q and %q", l.Topic, l.Partition, rec.Offset, l.Records[k-1].Value, rec.Value)
				} else {
					r.violate(Contiguous, "%s/%d offset %d comes twice", l.Topic, l.Partition, rec.Offset)
				}
			case rec.Offset != next:
				r.violate(Contiguous, "%s/%d has offset %d where %d belongs", l.Topic, l.Partition, rec.Offset, next)
			}
			next = rec.Offset + 1
			s := l.sent[k]
			if s == nil {
				r.violate(NothingInvented, "%s/%d offset %d holds %q, which nobody published to this topic", l.Topic, l.Partition, rec.Offset, rec.Value)
				continue
			}
			s.copies++
			if s.key != rec.Key {
				r.violate(NothingInvented, "%s/%d offset %d holds %q under key %q, published under %q", l.Topic, l.Partition, rec.Offset, rec.Value, rec.Key, s.key)
			}
			if rec.Key == "" {
				continue
			}
			id := keyID{l.Topic, rec.Key}
			switch p, seen := home[id]; {
			case !seen:
				home[id] = l.Partition
			case p != l.Partition && p != said:
				home[id] = said
				r.violate(KeyPlace, "%s key %q is in partition %d (offset %d) and in partition %d", l.Topic, rec.Key, l.Partition, rec.Offset, p)
			}
		}
		if next != l.End {
			r.violate(Contiguous, "%s/%d ends at %d, its last record says %d", l.Topic, l.Partition, l.End, next)
		}
	}
}

// copies compares how often each record stands with how often it may.
func (j *judge) copies() {
	r := j.report
	for id, s := range j.sent {
		switch {
		case s.refused == s.attempts:
			if s.copies > 0 {
				r.violate(Refused, "%s %q was refused %d times and stands %d times", id.topic, id.value, s.refused, s.copies)
			}
		case s.copies > s.mayStand():
			r.violate(OneCopy, "%s %q stands %d times, its %d attempts explain %d", id.topic, id.value, s.copies, s.attempts, s.mayStand())
		case s.copies > 1:
			r.Counts.ExtraCopies += s.copies - 1
		}
	}
}

// producerOrder walks each log and wants the sequences of each producer to go up.
func (j *judge) producerOrder() {
	for _, p := range j.places {
		last := map[string]int64{}
		c := j.logs[p]
		for i, rec := range c.Records {
			s := c.sent[i]
			// A record that was sent under two identities says nothing about either.
			if s == nil || len(s.ids) != 1 || s.loose > 0 || s.ids[0].producer == "" {
				continue
			}
			of := s.ids[0]
			if before, seen := last[of.producer]; seen && of.sequence < before {
				j.report.violate(ProducerOrder, "%s/%d offset %d has sequence %d of producer %s after sequence %d", p.topic, p.partition, rec.Offset, of.sequence, of.producer, before)
			}
			last[of.producer] = of.sequence
		}
	}
}

// timeOrder walks each log and wants no record whose acknowledgement had
// arrived before a record in front of it was even sent.
func (j *judge) timeOrder() {
	for _, p := range j.places {
		var latest time.Duration // invocation among the records so far
		var by string
		c := j.logs[p]
		for i, rec := range c.Records {
			s := c.sent[i]
			if s == nil || s.copies != 1 {
				continue // which copy an answer meant is not known
			}
			if s.ended > 0 && s.ended < latest {
				j.report.violate(TimeOrder, "%s/%d offset %d holds %q, acknowledged at %s, behind %q, sent at %s", p.topic, p.partition, rec.Offset, rec.Value, s.ended, by, latest)
			}
			if s.invoked > latest {
				latest, by = s.invoked, rec.Value
			}
		}
	}
}

// acknowledgements looks for each acknowledged record where it was said to be.
func (j *judge) acknowledgements() {
	type spot struct {
		place
		offset int64
	}
	r := j.report
	told := make(map[spot]string, r.Counts.Acknowledged)
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		if op.Outcome != OK {
			continue
		}
		if op.Offset == NoOffset {
			// A repeat beyond the window: it stands somewhere, unless retention took it.
			if j.sent[valueID{op.Topic, op.Value}].copies == 0 && !j.trimmed(op.Topic) {
				r.violate(Kept, "%s %q was acknowledged and is not in the log", op.Topic, op.Value)
			}
			continue
		}
		at := spot{place{op.Topic, op.Partition}, op.Offset}
		if other, seen := told[at]; seen && other != op.Value {
			r.violate(OneTruth, "%s/%d offset %d was told for %q and for %q", op.Topic, op.Partition, op.Offset, other, op.Value)
		}
		told[at] = op.Value
		c := j.logs[at.place]
		if c == nil {
			r.violate(Kept, "%s/%d offset %d was acknowledged for %q; there is no log of that partition", op.Topic, op.Partition, op.Offset, op.Value)
			continue
		}
		if op.Offset < c.Start {
			c.elsewhere[op.Offset] = op.Value
			continue // retention took it
		}
		switch i, found := c.at(op.Offset); {
		case !found:
			r.violate(Kept, "%s/%d offset %d was acknowledged for %q and is missing; the log is [%d,%d)", op.Topic, op.Partition, op.Offset, op.Value, c.Start, c.End)
		case c.Records[i].Value != op.Value:
			r.violate(Kept, "%s/%d offset %d was acknowledged for %q and holds %q", op.Topic, op.Partition, op.Offset, op.Value, c.Records[i].Value)
		}
	}
}

func (j *judge) trimmed(topic string) bool {
	for p, c := range j.logs {
		if p.topic == topic && c.Start > 0 {
			return true
		}
	}
	return false
}
