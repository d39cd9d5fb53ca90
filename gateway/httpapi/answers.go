package httpapi

import (
	"sync"

	"tidewire/gateway/publish"
	"tidewire/internal/ident"
)

const (
	// patientLines is up to where the status of an ndjson call waits for the end.
	patientLines = 10_000
	// maxPending bounds the lines that were read and not answered yet, and with
	// it how far a client may send ahead of what it reads. More than
	// patientLines, or those could never all be read.
	maxPending = 64 << 10
)

// answer is what became of one line.
type answer struct {
	settled   bool
	duplicate bool
	partition ident.Index
	offset    ident.Offset
	timestamp int64
	err       error
}

// answers brings what becomes of the lines, which comes in any order, back
// into the order of the lines. One goroutine adds lines, one takes answers,
// any settles.
type answers struct {
	mu      sync.Mutex
	changed sync.Cond
	ring    []answer // by line number modulo its length; grows up to maxPending
	head    int64    // the first line whose answer was not taken
	tail    int64    // lines so far
	settled int64    // lines that have an answer
	refused bool     // some line was not kept
	errors  int      // answers that were not taken and are errors
	ended   bool     // there are no more lines
	broken  bool     // nobody takes answers any more
}

func newAnswers() *answers {
	a := &answers{ring: make([]answer, 256)}
	a.changed.L = &a.mu
	return a
}

// add makes room for the next line and returns its number. It blocks while
// maxPending lines wait for their answers to be taken; false: nobody takes them
// any more.
func (a *answers) add() (line int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.tail-a.head == maxPending && !a.broken {
		a.changed.Wait()
	}
	if a.broken {
		return 0, false
	}
	if a.tail-a.head == int64(len(a.ring)) {
		a.growLocked()
	}
	line = a.tail
	a.tail++
	*a.at(line) = answer{}
	if a.tail == patientLines+1 {
		a.changed.Broadcast()
	}
	return line, true
}

func (a *answers) growLocked() {
	old := a.ring
	a.ring = make([]answer, 2*len(old))
	for i := a.head; i < a.tail; i++ {
		a.ring[i%int64(len(a.ring))] = old[i%int64(len(old))]
	}
}

const (
	// answerBytes and errorBytes are about what an answer holds, and an error
	// besides.
	answerBytes = 64
	errorBytes  = 768
)

// bytes is about what the answers hold that were not taken.
func (a *answers) bytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(len(a.ring)*answerBytes + a.errors*errorBytes)
}

func (a *answers) at(line int64) *answer { return &a.ring[line%int64(len(a.ring))] }

// settle says what became of a line.
func (a *answers) settle(line int64, res publish.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken {
		return // its place may be gone
	}
	*a.at(line) = answer{
		settled: true, duplicate: res.Duplicate, partition: res.Partition,
		offset: res.Offset, timestamp: res.Timestamp, err: res.Err,
	}
	a.settled++
	if res.Err != nil {
		a.refused = true
		a.errors++
	}
	if line == a.head || a.ended && a.settled == a.tail {
		a.changed.Broadcast()
	}
}

// end says that there are no more lines.
func (a *answers) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.changed.Broadcast()
}

// breakOff says that nobody takes answers any more.
func (a *answers) breakOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = true
	a.changed.Broadcast()
}

// verdict waits until the status can be told: all lines have their answer, or
// there are too many to wait for.
func (a *answers) verdict() (allKept, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.tail <= patientLines && !(a.ended && a.settled == a.tail) && !a.broken {
		a.changed.Wait()
	}
	if a.tail > patientLines {
		return false, false
	}
	return !a.refused, true
}

// take waits for the next line's answer and moves it and those ready behind it
// into the batch. drained: there are none ready behind these. An empty batch
// is the end.
func (a *answers) take(batch []answer) (_ []answer, drained bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !(a.head < a.tail && a.at(a.head).settled) && !(a.ended && a.head == a.tail) && !a.broken {
		a.changed.Wait()
	}
	full := a.tail-a.head == maxPending
	for a.head < a.tail && a.at(a.head).settled && len(batch) < cap(batch) && !a.broken {
		batch = append(batch, *a.at(a.head))
		if a.at(a.head).err != nil {
			a.errors--
			a.at(a.head).err = nil
		}
		a.head++
	}
	if full {
		a.changed.Broadcast()
	}
	return batch, len(batch) < cap(batch)
}
