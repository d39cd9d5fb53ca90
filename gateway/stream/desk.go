package stream

import (
	"slices"
	"strconv"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/gateway/turn"
)

const (
	// turnBytes is how much a turn gathers before it writes.
	turnBytes = 64 << 10
	// turnMessages is the longest run that is asked for.
	turnMessages = 256

	// headBytes is room for the head of a chunk: its size in hexadecimal, CR and
	// LF.
	headBytes = 10
	chunkTail = "\r\n"
	lastChunk = "0\r\n\r\n"
)

// desk is what is written at one time, and what that is put together with.
// Nothing on it outlives the turn but what is shared by many.
type desk struct {
	body    []byte        // headBytes of room, then events
	pending []deliver.Run // the newest messages, not spelled out yet
	runs    []deliver.Run // in the body
	common  []byte        // the chunk, where it is one that others get too
	shared  sharedChunk
	attempt *turn.Attempt
	tally   *deliver.Tally
}

func newDesk(m *deliver.Metrics) *desk {
	return &desk{body: make([]byte, headBytes, 4<<10), tally: m.Tally(deliver.SSE)}
}

func (d *desk) reset() {
	clear(d.runs)
	d.runs = d.runs[:0]
	if d.body = d.body[:headBytes]; cap(d.body) > 4*turnBytes {
		d.body = make([]byte, headBytes, turnBytes) // one large message is no reason to keep the room
	}
	d.common = nil
}

// event adds an event with one line of data; without an id the client keeps
// the one before.
func (d *desk) event(name, id string, data []byte) {
	d.spell()
	d.body = append(d.body, "event: "...)
	d.body = append(d.body, name...)
	if id != "" {
		d.body = append(d.body, "\nid: "...)
		d.body = append(d.body, id...)
	}
	d.data(data)
}

func (d *desk) data(data []byte) {
	d.body = append(d.body, "\ndata: "...)
	d.body = append(d.body, data...)
	d.body = append(d.body, "\n\n"...)
}

// position adds an id without an event: the client remembers it.
func (d *desk) position(id string) {
	d.spell()
	d.body = append(d.body, "id: "...)
	d.body = append(d.body, id...)
	d.body = append(d.body, "\n\n"...)
}

func (d *desk) comment() {
	d.spell()
	d.body = append(d.body, ":\n\n"...)
}

func (d *desk) retry(after time.Duration) {
	d.spell()
	d.body = append(d.body, "retry: "...)
	d.body = strconv.AppendInt(d.body, max(1, after.Milliseconds()), 10)
	d.body = append(d.body, "\n\n"...)
}

// messages adds the pending runs. With a scope each message has an id, which is
// of one partition; without, none has.
func (d *desk) messages(scope *deliver.Scope) {
	if len(d.pending) == 0 {
		return
	}
	alone := len(d.body) == headBytes && d.common == nil
	if alone && d.shared.holds(scope, d.pending) {
		d.common = d.shared.chunk
	} else {
		d.spell()
		for _, r := range d.pending {
			for i := range r.Len() {
				d.body = append(d.body, "event: message"...)
				if scope != nil {
					d.body = append(d.body, "\nid: "...)
					d.body = scope.AppendCursorAfter(d.body, r, i)
				}
				d.data(r.Message(i))
			}
		}
		if alone {
			d.shared.keep(scope, d.pending, d.body)
		}
	}
	d.runs = append(d.runs, d.pending...)
	clear(d.pending)
	d.pending = d.pending[:0]
}

// spell writes out what the body has in common with others, because something
// else goes into it.
func (d *desk) spell() {
	if d.common == nil {
		return
	}
	d.common = nil
	d.body = append(d.body[:headBytes], plain(d.shared.chunk)...)
}

// empty reports whether there is nothing to write.
func (d *desk) empty() bool { return d.common == nil && len(d.body) == headBytes }

// chunk is what is to be written, as a chunk of the answer's body.
func (d *desk) chunk() []byte {
	if d.common != nil {
		return d.common
	}
	d.body = append(d.body, chunkTail...)
	return seal(d.body)
}

// plain is what is to be written, where nothing divides the answer's body.
func (d *desk) plain() []byte {
	if d.common != nil {
		return plain(d.common)
	}
	return d.body[headBytes:]
}

// seal writes the head of a chunk, whose data lie between headBytes of room and
// the tail, and returns the whole chunk.
func seal(b []byte) []byte {
	const digits = "0123456789abcdef"
	start := headBytes - 2
	b[start], b[start+1] = '\r', '\n'
	for n := len(b) - headBytes - len(chunkTail); n > 0; n >>= 4 {
		start--
		b[start] = digits[n&15]
	}
	return b[start:]
}

// plain is the data of a chunk.
func plain(chunk []byte) []byte {
	return chunk[slices.Index(chunk, '\n')+1 : len(chunk)-len(chunkTail)]
}

// sharedChunk is the chunk of messages that was made last. Streams that keep pace
// stand at the same place, so the next one mostly gets the same.
type sharedChunk struct {
	named bool // the messages have ids
	scope deliver.Scope
	runs  []deliver.Run
	buf   []byte
	chunk []byte // whole, in buf; nil: there is none
}

func (c *sharedChunk) holds(scope *deliver.Scope, runs []deliver.Run) bool {
	return c.chunk != nil && c.named == (scope != nil) && (scope == nil || *scope == c.scope) && slices.Equal(c.runs, runs)
}

// keep remembers the body of these runs alone.
func (c *sharedChunk) keep(scope *deliver.Scope, runs []deliver.Run, body []byte) {
	if c.named = scope != nil; c.named {
		c.scope = *scope
	}
	clear(c.runs)
	c.runs = append(c.runs[:0], runs...)
	c.buf = append(c.buf[:0], body...)
	if c.buf = append(c.buf, chunkTail...); cap(c.buf) > 4*turnBytes {
		*c = sharedChunk{}
		return
	}
	c.chunk = seal(c.buf)
}
