package deliver

import (
	"sort"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/wire"
)

// block is one committed batch as readers get it: each record encoded once,
// with its key beside it so that a filter needs no second decoding. It never
// changes once it is made.
type block struct {
	base, next ident.Offset // the offsets it stands for: [base, next)
	epoch      ident.Epoch
	timestamp  int64 // ms since 1970
	partition  ident.Index

	lines []byte // messages back to back, each with a \n before it
	marks []mark // one a message
	keys  []byte // back to back
}

// mark is where a message ends in its block.
type mark struct {
	line  uint32 // end in lines
	key   uint32 // end in keys
	delta uint32 // offset minus base
}

// encode makes a batch ready for readers of topic: all of it, or where a filter
// is given what that lets through.
func encode(topic string, b record.Batch, m *matcher) (*block, error) {
	h := b.Header()
	k := &block{base: h.Base, next: h.Next(), epoch: h.Epoch, timestamp: h.Timestamp, partition: h.Partition.Index}
	if m.all {
		k.lines = make([]byte, 0, len(b)+128*h.Entries)
		k.marks = make([]mark, 0, h.Entries)
	}
	it := b.Entries()
	for it.Next() {
		e := it.Entry()
		if e.Void || !m.match(e.Key) {
			continue
		}
		k.lines = append(k.lines, '\n')
		k.lines = wire.AppendMessage(k.lines, topic, h, e)
		k.keys = append(k.keys, e.Key...)
		k.marks = append(k.marks, mark{uint32(len(k.lines)), uint32(len(k.keys)), uint32(e.Delta)})
	}
	return k, it.Err()
}

// bytes is about what the block costs.
func (k *block) bytes() int { return cap(k.lines) + 12*cap(k.marks) + cap(k.keys) + 96 }

// find is the first message at or after an offset.
func (k *block) find(o ident.Offset) int {
	if o <= k.base {
		return 0
	}
	delta := o - k.base
	if i := int(delta); i < len(k.marks) && k.marks[i].delta == uint32(i) { // no holes so far
		return i
	}
	return sort.Search(len(k.marks), func(i int) bool { return ident.Offset(k.marks[i].delta) >= delta })
}

func (k *block) key(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = k.marks[i-1].key
	}
	return k.keys[start:k.marks[i].key]
}

// line is message i with the \n before it.
func (k *block) line(i int) []byte { return k.span(i, i+1) }

func (k *block) span(from, to int) []byte {
	if from == to {
		return nil
	}
	start := uint32(0)
	if from > 0 {
		start = k.marks[from-1].line
	}
	end := k.marks[to-1].line
	return k.lines[start:end:end]
}

func (k *block) offset(i int) ident.Offset { return k.base + ident.Offset(k.marks[i].delta) }

// Limit bounds a run. A run of one message may exceed Bytes.
type Limit struct {
	Messages int // at least 1
	Bytes    int
	Ring     bool // do not read the log, which may take time: say Behind
}

// run cuts from the block the next messages at or after an offset that the
// filter lets through and that lie side by side. An empty run says that there
// is none.
func (k *block) run(o ident.Offset, m *matcher, lim Limit) Run {
	from := k.find(o)
	for from < len(k.marks) && !m.match(k.key(from)) {
		from++
	}
	to, bytes := from, 0
	for to < len(k.marks) && to-from < lim.Messages && m.match(k.key(to)) {
		n := len(k.line(to))
		if to > from && bytes+n > lim.Bytes {
			break
		}
		bytes += n
		to++
	}
	return Run{block: k, from: from, to: to}
}

// Run is a run of encoded messages of one partition, shared by everybody who
// reads it: its bytes must not be changed.
type Run struct {
	block    *block
	from, to int
	live     bool
}

// Len is the number of messages.
func (r Run) Len() int { return r.to - r.from }

// Lines is the run in one piece: each message with a newline before it.
func (r Run) Lines() []byte { return r.block.span(r.from, r.to) }

// Message is message i of the run, without a newline.
func (r Run) Message(i int) []byte { return r.block.line(r.from + i)[1:] }

// Offset is where message i of the run lies in the partition.
func (r Run) Offset(i int) ident.Offset { return r.block.offset(r.from + i) }

// Partition is where the run comes from.
func (r Run) Partition() ident.Index { return r.block.partition }

// Timestamp is when the leader took the messages in, in ms since 1970.
func (r Run) Timestamp() int64 { return r.block.timestamp }

// Live reports whether the run came from the ring: its reader keeps pace.
func (r Run) Live() bool { return r.live }
