package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/record"
)

// Bounds of the batches of one stream that are not answered, on both ends: past
// them the server reads no more, and the client takes no more in. One batch is
// always let through.
const (
	maxUnanswered      = 16 << 10
	maxUnansweredBytes = 64 << 20
)

// appendMoment is how long batches under way have to be answered when the server stops.
const appendMoment = 2 * time.Second

// intake is the server's end of an Append stream.
type intake struct {
	out  *outlet[answer]
	line *framed
	// message is being sent; by one at a time.
	message encoder

	// Guarded by out.mu, in bytes: answers that wait to be sent; messages that were, with
	// frameCost for each; and those of them that the client has received.
	waiting       int
	sent, arrived uint64

	mu    sync.Mutex
	moved sync.Cond // of mu: something of the following got less, or ended
	count int       // batches not answered
	bytes int
	taken uint64 // id of the last batch taken in
	ended bool   // no more is taken in
}

func (s *Server) serveAppend(f *framed, b BrokerBackend) *ending {
	in := &intake{line: f}
	in.moved.L = &in.mu
	in.out = newOutlet(cutAnswers, in.send, func() bool { return in.waiting+int(in.sent-in.arrived) <= calmBytes })
	err := s.streaming(f.ctx, appendMoment, nil, func(ctx context.Context) error { return in.serve(ctx, b, &s.serving) })
	return &ending{problem: err, taken: in.last()}
}

// serve takes batches in until the client is done, the stream breaks or ctx ends, and
// then waits for what is not answered.
func (in *intake) serve(ctx context.Context, b BrokerBackend, serving *sync.WaitGroup) error {
	// The stream's own context lives on while ctx tells of an orderly end.
	broken := in.line.ctx
	release := context.AfterFunc(broken, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.moved.Broadcast()
	})
	defer release()
	sending, stop := context.WithCancel(broken)
	var sender sync.WaitGroup
	sender.Go(func() { in.out.run(sending) })
	received := make(chan error, 1)
	// A receive ends with the stream alone: at an orderly end, once serve has returned.
	serving.Go(func() { received <- in.receive(broken, b) })
	var err error
	select {
	case err = <-received:
	case <-ctx.Done():
		if err = errStopping; broken.Err() != nil {
			err = <-received // which ends with it
		}
	}
	in.drain(broken)
	in.out.end()
	stop()
	sender.Wait()
	return err
}

func (in *intake) receive(broken context.Context, b BrokerBackend) error {
	var m appendRequest
	for {
		bytes, given, err := in.line.next()
		if errors.Is(err, io.EOF) {
			return nil // the client has gone
		}
		if err == nil {
			err = m.decode(bytes, given)
		}
		if err != nil {
			return err
		}
		in.out.mu.Lock()
		in.arrived = max(in.arrived, min(m.received, in.sent))
		in.out.mu.Unlock()
		for i := range m.items {
			if !in.admit(broken, &m.items[i]) {
				return errStopping
			}
			in.append(b, m.items[i])
			m.items[i] = appendItem{} // the batch has a new owner
		}
	}
}

// admit takes a batch in once there is room; false: no more is taken.
func (in *intake) admit(broken context.Context, it *appendItem) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.ended && broken.Err() == nil && in.count > 0 &&
		(in.count >= maxUnanswered || in.bytes+len(it.Batch) > maxUnansweredBytes) {
		in.moved.Wait()
	}
	if in.ended || broken.Err() != nil {
		return false
	}
	in.count++
	in.bytes += len(it.Batch)
	in.taken = it.id
	return true
}

func (in *intake) append(b BrokerBackend, it appendItem) {
	bytes := len(it.Batch)
	if h, err := record.ParseHeader(it.Batch); err != nil || h.Length != bytes {
		in.answer(it.id, bytes, Appended{Err: fault.New(fault.Invalid, "a batch of %d bytes has no whole header: %v", bytes, err)})
		return
	}
	b.Append(it.Append, func(a Appended) { in.answer(it.id, bytes, a) })
}

// answer is called once for each batch, from wherever it was kept.
func (in *intake) answer(id uint64, bytes int, a Appended) {
	in.mu.Lock()
	in.bytes -= bytes
	in.mu.Unlock()
	o := in.out
	o.mu.Lock()
	in.waiting += answerBytes(&a)
	flush := !o.ended && o.putLocked(answer{id, a})
	o.mu.Unlock()
	if flush {
		_ = o.flush() // a broken stream ends receive
	}
}

// send is called by one at a time. What is answered makes room once it is sent: one
// that does not read its answers is read no further.
func (in *intake) send(answers []answer) error {
	m := appendResponse{items: answers}
	m.encode(&in.message)
	in.out.mu.Lock()
	for i := range answers {
		in.waiting -= answerBytes(&answers[i].Appended)
	}
	in.sent += uint64(in.message.len()) + frameCost
	in.out.mu.Unlock()
	err := in.line.send(frameMessage, &in.message)
	in.mu.Lock()
	in.count -= len(answers)
	in.moved.Broadcast()
	in.mu.Unlock()
	return err
}

// drain takes no more in, and returns once all is answered or the stream is broken.
func (in *intake) drain(broken context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.moved.Broadcast()
	for in.count > 0 && broken.Err() == nil {
		in.moved.Wait()
	}
}

// last is the id of the last batch that was taken in; there will be none after it.
func (in *intake) last() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	return in.taken
}

// messageBytes is about how long a message of several items becomes before the rest
// goes into another.
const messageBytes = 512 << 10

// answerBytes is about how long an answer is at most.
func answerBytes(a *Appended) int { return itemBytes + 32*len(a.Records) }

func cutAnswers(answers []answer) int {
	bytes := 0
	for i := range answers {
		bytes += answerBytes(&answers[i].Appended)
		if bytes > messageBytes && i > 0 {
			return i
		}
	}
	return len(answers)
}

func cutItems(items []appendItem) int {
	bytes := 0
	for i := range items {
		bytes += itemBytes + len(items[i].Batch)
		if bytes > messageBytes && i > 0 {
			return i
		}
	}
	return len(items)
}
