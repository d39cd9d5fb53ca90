package check

import (
	"sync"
	"time"
)

// Recorder gathers a History from many goroutines.
type Recorder struct {
	began time.Time

	mu      sync.Mutex
	ops     []*Op
	readers []*Reader
	logs    []Log
}

// NewRecorder starts an empty history now.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Pending is an operation that was invoked. End it with OK, Fail or Unknown;
// one that is never ended counts as unknown. It belongs to one goroutine.
type Pending struct {
	r  *Recorder
	op *Op
}

// Invoke notes that the operation is about to be sent. The recorder sets the times.
func (r *Recorder) Invoke(op Op) *Pending {
	kept := op
	kept.Outcome, kept.Ended, kept.Offset = Unknown, 0, NoOffset
	kept.Wall = time.Now()
	kept.Invoked = kept.Wall.Sub(r.began)
	r.mu.Lock()
	r.ops = append(r.ops, &kept)
	r.mu.Unlock()
	return &Pending{r: r, op: &kept}
}

// OK notes an acknowledgement; offset may be NoOffset.
func (p *Pending) OK(partition int, offset int64, duplicate bool) {
	p.end(OK, "", partition, offset, duplicate)
}

// Fail notes a refusal that promises that nothing was kept.
func (p *Pending) Fail(code string) { p.end(Failed, code, 0, NoOffset, false) }

// Unknown notes an end that leaves the outcome open: a cut connection, a
// timeout, unknown-outcome.
func (p *Pending) Unknown(why string) { p.end(Unknown, why, 0, NoOffset, false) }

func (p *Pending) end(o Outcome, why string, partition int, offset int64, duplicate bool) {
	ended := time.Since(p.r.began)
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.op.Outcome, p.op.Error, p.op.Ended = o, why, ended
	p.op.Partition, p.op.Offset, p.op.Duplicate = partition, offset, duplicate
}

// Tape is where one reader notes what it sees. It belongs to one goroutine.
type Tape struct {
	r      *Recorder
	reader *Reader
}

// Reader starts the notes of a reader.
func (r *Recorder) Reader(of Reader) *Tape {
	kept := of
	kept.Events, kept.Complete = nil, false
	r.mu.Lock()
	r.readers = append(r.readers, &kept)
	r.mu.Unlock()
	return &Tape{r: r, reader: &kept}
}

// Message notes a record.
func (t *Tape) Message(partition int, offset int64, key, value string) {
	t.note(Event{Kind: Message, Partition: partition, Offset: offset, Key: key, Value: value})
}

// Resume notes that a new session goes on where the last one was.
func (t *Tape) Resume() { t.note(Event{Kind: Resume}) }

// Gap notes that the reader was told to go on at an offset.
func (t *Tape) Gap(partition int, next int64) {
	t.note(Event{Kind: Gap, Partition: partition, Offset: next})
}

// Complete notes that the reader read until nothing was left.
func (t *Tape) Complete() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.reader.Complete = true
}

// Count is the number of records noted so far, repeats included.
func (t *Tape) Count() int {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	n := 0
	for _, e := range t.reader.Events {
		if e.Kind == Message {
			n++
		}
	}
	return n
}

func (t *Tape) note(e Event) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.reader.Events = append(t.reader.Events, e)
}

// Log adds what a partition holds in the end.
func (r *Recorder) Log(l Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, l)
}

// History copies what was gathered so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Ops: make([]Op, len(r.ops)), Readers: make([]Reader, len(r.readers))}
	for i, op := range r.ops {
		h.Ops[i] = *op
	}
	for i, reader := range r.readers {
		h.Readers[i] = *reader
		h.Readers[i].Events = append([]Event(nil), reader.Events...)
	}
	h.Logs = append(h.Logs, r.logs...)
	return h
}
