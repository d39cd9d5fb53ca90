package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/budget"
	"tidewire/gateway/publish"
	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// A body of ndjson is a stream of records. Two goroutines share it: the
// handler's own reads lines and publishes them in their order, without waiting
// for the fate of one before it sends the next; the other writes what became of
// them, in the order of the lines. Memory is bounded by one line, by the records
// the publisher has under way and by maxPending answers.
//
// Many clients send all of their body before they read any of the answer. Up
// to patientLines lines that is how it goes anyway: the status is not known
// before the end. Past that the answer flows while the body still does, which
// clients that read while they send (curl, Go, browsers over HTTP/2) take as it
// comes. One that does not read can go on sending until maxPending answers and
// the sockets' buffers are full; then it is not read from either, and after
// writeTimeout its connection ends. Nothing waits for ever.

// readAhead is how much of a body of lines is read at a time.
const readAhead = 64 << 10

// lineRoom is what a line takes beside a record's value: names, key, headers,
// each of which may be written in escapes.
const lineRoom = 128 << 10

// lineBytes bounds a line by what the largest record can need: JSON may write
// one byte of text in up to six.
func lineBytes(maxMessage int) int { return 6*maxMessage + lineRoom }

// produceLines is POST /topics/{topic} with one record a line.
func (a *API) produceLines(w http.ResponseWriter, r *http.Request, c *produceCall) error {
	_ = http.NewResponseController(w).EnableFullDuplex()     // HTTP/2 always is
	in := newSender(w, r, lineSilence, grantedFor(c.caller)) // a body may last for hours
	stop := in.stopWith(a.drain)
	defer stop()

	ans := newAnswers()
	var writing sync.WaitGroup
	var failed error
	writing.Go(func() {
		defer func() { // a panic here would end the process, not the request
			if p := recover(); p != nil {
				a.log.Error("panic in a request", "route", routePattern(r), "panic", p, "stack", string(debug.Stack()))
				failed = http.ErrAbortHandler
			}
			if failed != nil {
				ans.breakOff()
			}
		}()
		failed = a.writeAnswers(w, c, ans)
	})
	share := a.cfg.Held.Share()
	defer share.Close()
	h := &lineHolder{ctx: r.Context(), share: share, broken: in.broken}
	lines := newLineReader(in, lineBytes(c.mostBytes()), readAhead)
	lines.hold = h.line
	a.readLines(lines, c, ans, h)
	ans.end()
	writing.Wait()
	if failed != nil {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	return nil
}

// readLines publishes the lines of a body until it ends.
func (a *API) readLines(in *lineReader, c *produceCall, ans *answers, h *lineHolder) {
	for sequence := c.sequence; ; sequence++ {
		line, partial, err := in.next()
		if err == io.EOF {
			return
		}
		number, ok := ans.add()
		if !ok {
			return
		}
		done := func(res publish.Result) { ans.settle(number, res) }
		if err != nil && !errors.Is(err, errLineTooLong) {
			// The body did not end here; its sender hears what came no further.
			done(publish.Result{Err: a.brokenLines(c, err, partial)})
			return
		}
		if over := a.cfg.Quota.Wait(a.drain, c.client); over != nil {
			done(publish.Result{Err: over})
			continue
		}
		if err := h.answers(ans.bytes()); err != nil {
			done(publish.Result{Err: err})
			return
		}
		var rec record.Record
		var partition *ident.Index
		if err == nil {
			rec, partition, err = c.line(line, sequence)
		} else {
			err = c.tooLarge(fmt.Sprintf("the line has more than the %d bytes that JSON can need for a record", in.most))
		}
		if err != nil {
			a.refuse(c, sequence, err, done)
			continue
		}
		req := c.request(rec)
		req.Partition = partition
		a.cfg.Publisher.Publish(req, done)
	}
}

func (a *API) brokenLines(c *produceCall, err error, partial bool) error {
	switch {
	case c.caller.Expired(time.Now()):
		return access.Ended()
	case fault.Is(err, fault.Throttled): // no room for the line
		return err
	}
	if a.drain.Err() != nil {
		return fault.New(fault.Draining, "the node is shutting down; nothing from this line on was read")
	}
	if partial {
		return fault.New(fault.Invalid, "this line did not arrive whole and was not published: %w", brokenBody(err)).With("field", "body")
	}
	return brokenBody(err)
}

// line makes the record of one line.
func (c *produceCall) line(line []byte, sequence int64) (rec record.Record, partition *ident.Index, err error) {
	if c.sequenced && sequence > ident.MaxSequence {
		return rec, nil, invalid("Tidewire-Sequence", "counts up to %d; start a new producer", ident.MaxSequence)
	}
	p, err := wire.ParseLine(line)
	if err != nil {
		return rec, nil, err
	}
	rec, partition = p.Record, c.partition
	if p.Partition != nil {
		if partition != nil && *partition != *p.Partition {
			return rec, nil, invalid("partition", "of the line is %d, and the call's is %d; give one of them", *p.Partition, *partition)
		}
		partition = p.Partition
	}
	if rec.Bytes() > c.mostBytes() {
		return rec, nil, publish.TooLarge(c.topic.Name, rec.Bytes(), c.topic.Settings.MaxMessageBytes)
	}
	if c.sequenced {
		rec.Producer, rec.Sequence = c.producer, sequence
	}
	return rec, partition, nil
}

// writeAnswers writes one line for each line read, in their order.
func (a *API) writeAnswers(w http.ResponseWriter, c *produceCall, ans *answers) error {
	allKept, ended := ans.verdict()
	status := http.StatusMultiStatus
	switch {
	case ended && allKept && c.acks == rpc.AcksNone:
		status = http.StatusAccepted
	case ended && allKept:
		status = http.StatusCreated
	}
	h := w.Header()
	h.Set("Content-Type", ndjsonType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)

	control := http.NewResponseController(w)
	batch := make([]answer, 0, 256)
	logged := false
	var b []byte
	for {
		var drained bool
		batch, drained = ans.take(batch[:0])
		if len(batch) == 0 {
			return nil
		}
		b = b[:0]
		for i := range batch {
			x := &batch[i]
			if x.err != nil && !logged && fault.KindOf(x.err) == fault.Internal {
				a.log.Error("a line failed; others of its call may have too", "topic", c.topic.Name, "err", x.err)
				logged = true
			}
			b = append(a.appendAnswer(b, c, x), '\n')
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		if drained && !ended {
			if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return err
			}
		}
	}
}

func (a *API) appendAnswer(b []byte, c *produceCall, x *answer) []byte {
	if x.err != nil {
		a.metrics.linesRefused.Inc()
		return append(b, reply.Problem(x.err)...)
	}
	a.metrics.linesKept.Inc()
	res := publish.Result{Topic: c.topic.Name, Partition: x.partition, Offset: x.offset, Timestamp: x.timestamp, Duplicate: x.duplicate}
	return appendResult(b, &res, c.acks)
}

// lineHolder takes what a body of lines holds from the share of its call. It
// belongs to the goroutine that reads the lines.
type lineHolder struct {
	ctx    context.Context
	share  *budget.Share
	broken func() // called when the body is not read on
	held   int64  // for answers
}

// line takes room for a line of n bytes in place of one of has bytes.
func (h *lineHolder) line(has, n int) error {
	if n > has {
		if err := h.need(int64(n)); err != nil {
			return err
		}
		n = 0
	}
	h.share.Give(int64(has - n))
	return nil
}

// answers takes room for answers of n bytes in all, in pieces; few are free.
func (h *lineHolder) answers(n int64) error {
	n = n / heldPiece * heldPiece
	switch {
	case n > h.held:
		if err := h.need(n - h.held); err != nil {
			return err
		}
		h.held = n
	case n < h.held-heldPiece:
		h.share.Give(h.held - n)
		h.held = n
	}
	return nil
}

func (h *lineHolder) need(n int64) error {
	err := h.share.Need(h.ctx, n, heldPatience)
	if err != nil {
		h.broken()
	}
	return err
}
