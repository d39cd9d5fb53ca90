package load

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// Backlog is a load of readers that take records which were kept before. Together they
// take each once.
type Backlog struct {
	Target  Target
	Records Records
	Count   int // of the backlog, as Publish.Fill made it
	Readers int

	// Listen is of another server than Tidewire, or where a record counts only once it is
	// acknowledged; nil: one subscription of Tidewire's from the earliest record on.
	Listen func(reader int) Ear
}

// Run reads the backlog from its first record to its last. A message is a record.
func (w Backlog) Run(ctx context.Context, p Progress) (figure.Run, error) {
	crew, err := newCrew(ctx, w.Readers, 0)
	if err != nil {
		return figure.Run{}, err
	}
	defer crew.stop()
	recs, seen := newRecorders(crew), make([]atomic.Uint64, (w.Count+63)/64)
	m := &meter{crew: crew, recs: recs, pids: w.Target.PIDs()}
	self, server, err := m.sample()
	if err != nil {
		return figure.Run{}, err
	}
	began := time.Now()
	err = crew.each(w.Readers, "connecting readers", p, func(i int) error {
		var ear Ear = newHistory(w.Records)
		if w.Listen != nil {
			ear = w.Listen(i)
		}
		x := &backlogReader{crew: crew, ear: ear, rec: recs[i%len(recs)], seen: seen, count: int64(w.Count)}
		x.take = x.note
		conn, err := ear.Open(w.Target.turn(i))
		if err != nil {
			return err
		}
		if err := crew.loops[i%len(crew.loops)].Add(conn, x); err != nil {
			conn.Cut()
			return err
		}
		return nil
	})
	if err != nil {
		return figure.Run{}, err
	}
	p.Phase("reading the backlog", w.Count)
	if err := crew.reach(int64(w.Count), m.moved, "read", p); err != nil {
		return figure.Run{}, err
	}
	took := time.Since(began)
	selfAfter, serverAfter, err := m.sample()
	if err != nil {
		return figure.Run{}, err
	}
	used := serverAfter.Sub(server)
	return figure.NewRun(1, took, m.take(), &used, selfAfter.Sub(self)), nil
}

// backlogReader is one reader.
type backlogReader struct {
	crew  *crew
	ear   Ear
	rec   *recorder
	seen  []atomic.Uint64
	count int64
	take  func(int64) error
}

// Receive counts records.
func (x *backlogReader) Receive(b []byte) (int, error) {
	x.rec.mu.Lock()
	defer x.rec.mu.Unlock()
	return x.ear.Hear(b, x.take)
}

func (x *backlogReader) note(n int64) error {
	if n >= x.count {
		return fmt.Errorf("record %d came, which is not of the backlog", n)
	}
	if !mark(x.seen, n) {
		x.rec.duplicates++
		return nil
	}
	x.rec.messages++
	x.rec.moved.Add(1)
	return nil
}

// Ended ends the load.
func (x *backlogReader) Ended(err error) { x.crew.fail(fmt.Errorf("a reader: %w", err)) }

// history is a subscription from the earliest record on.
type history struct {
	r    Records
	key  [4]byte
	conn *sock.Conn
}

func newHistory(r Records) *history { return &history{r: r, key: MaskKey()} }

// Open connects and asks for everything.
func (h *history) Open(t Target) (c *sock.Conn, err error) {
	if h.conn, err = dialWebSocket(t); err != nil {
		return nil, err
	}
	ask := fmt.Appendf(nil, `{"op":"subscribe","id":1,"topic":%q,"from":"earliest"}`, h.r.Topic)
	if err := h.conn.Write(frame.Append(nil, frame.Text, ask, h.key)); err != nil {
		h.conn.Cut()
		return nil, err
	}
	return h.conn, nil
}

var opHead = []byte(`{"op":"`)

// Hear finds records.
func (h *history) Hear(b []byte, take func(int64) error) (int, error) {
	return Texts(b, h.conn, h.key, func(payload []byte) error {
		for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
			if bytes.HasPrefix(line, opHead) {
				if err := failure(line); err != nil {
					return err
				}
				continue
			}
			n, err := message.Number(line, h.r.Bytes)
			if err != nil {
				return err
			}
			if err := take(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// failure is what a line that is no message says went wrong; nil: nothing did.
func failure(line []byte) error {
	if bytes.HasPrefix(line, messagesHead) {
		return nil
	}
	n, err := readNotice(line)
	switch {
	case err != nil:
		return err
	case n.Op == "error":
		return n.refusal()
	case n.Op == "closing", n.Op == "gap":
		return n
	}
	return nil
}
