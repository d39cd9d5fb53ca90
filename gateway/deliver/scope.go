package deliver

import (
	"tidewire/gateway/cursor"
	"tidewire/internal/ident"
)

// Scope is what the cursors of a subscription have in common, wherever it stands.
type Scope struct {
	topic      ident.TopicID
	generation ident.Generation
	rng        ident.HashRange
}

// Scope is the subscription's.
func (s *Subscription) Scope() Scope {
	return Scope{topic: s.topic.ID, generation: s.topic.Generation, rng: s.rng}
}

// AppendCursorAfter appends the cursor of a reader of one partition alone, once it
// has read message i of a run of it. Readers of the same scope get the same.
func (c Scope) AppendCursorAfter(b []byte, r Run, i int) []byte {
	next := r.Offset(i) + 1
	if r.from+i+1 == len(r.block.marks) {
		next = r.block.next
	}
	places := [1]cursor.Place{{Partition: r.block.partition, Epoch: r.block.epoch, Offset: next}}
	return cursor.Cursor{Topic: c.topic, Generation: c.generation, Range: c.rng, Places: places[:]}.AppendTo(b)
}

// Told notes that the reader knows where the subscription stands otherwise than
// by Cursor.
func (s *Subscription) Told() {
	for i := range s.parts {
		s.parts[i].told = s.parts[i].offset()
	}
}
