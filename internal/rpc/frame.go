package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// A stream that carries records goes over a TCP connection of its own, in frames:
//
//	┌─────────┬─────────────────────┬──────┐
//	│ kind u8 │ length u32, big-end. │ body │
//	└─────────┴─────────────────────┴──────┘
//
// The caller begins with preface and an open frame, which is answered by an open frame
// or by an end. From then on either side sends messages, and an alive frame when it had
// nothing to send for a while. The callee ends a stream with an end frame, the caller by
// closing the connection. Bodies are in protobuf's wire format.
const (
	frameOpen    byte = 1 // of the caller: what it opens; of the callee: empty, it is open
	frameMessage byte = 2
	frameAlive   byte = 3 // empty
	frameEnd     byte = 4 // why the callee ends the stream

	frameHead = 5
	// maxOpenBytes bounds what is said once: what is opened, and why it ends.
	maxOpenBytes = 16 << 10
)

// sendBufferBytes is asked of the kernel for what is on its way: several times
// calmBytes, for it counts a small frame as much more than it has.
const sendBufferBytes = 512 << 10

// framed is a connection that carries one stream. Messages are received by one goroutine,
// which waits for nobody else on their way in.
type framed struct {
	conn net.Conn
	// bare is conn without what is around it: several pieces are one write.
	bare    net.Conn
	most    int // bytes of a message that comes
	metrics *Metrics

	in   *bufio.Reader
	held int // bytes of the frame that was given last

	// ctx ends when nothing more comes, or the stream is closed.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// writing is held by who writes a frame, for as long as the kernel makes it wait,
	// as its own lock of the connection would be: a frame is one piece.
	writing sync.Mutex
	torn    error // a frame was not written whole: nothing may follow it
	poster  poster

	over atomic.Bool // its end was sent, or is about to be: what comes is thrown away
	// Begun and ended, so they are odd while a write or a read is under way.
	writes, reads atomic.Uint64
	watch         watch
}

func newFramed(ctx context.Context, conn net.Conn, m *Metrics) *framed {
	f := &framed{conn: conn, bare: conn, most: maxMessageBytes, metrics: m}
	if c, ok := conn.(*counted); ok {
		f.bare = c.Conn
	}
	if tcp, ok := f.bare.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes) // without it a write waits sooner
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.poster.init(f.bare)
	f.in = bufio.NewReaderSize((*incoming)(f), bufferBytes)
	return f
}

// incoming is what comes over the connection.
type incoming framed

func (s *incoming) Read(b []byte) (int, error) {
	s.reads.Add(1)
	n, err := s.bare.Read(b)
	s.reads.Add(1)
	s.metrics.received.Add(float64(n))
	return n, err
}

// send writes a frame, and waits for a connection that takes no bytes. An error does
// not end the stream: who receives may yet hear why.
func (f *framed) send(kind byte, e *encoder) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	_, err := f.writeLocked(e.frame(kind))
	return err
}

func (f *framed) writeLocked(frame net.Buffers) (n int64, err error) {
	if f.torn != nil {
		return 0, f.torn
	}
	f.writes.Add(1)
	if len(frame) == 1 {
		var one int
		one, err = f.bare.Write(frame[0])
		n = int64(one)
	} else {
		n, err = frame.WriteTo(f.bare)
	}
	f.writes.Add(1)
	f.metrics.sent.Add(float64(n))
	if err != nil && n > 0 {
		f.torn = err
	}
	return n, err
}

// next gives the next message: until the following call, or for good if it says so. An
// error is the end of the stream: what the other end said, or why it ended here.
func (f *framed) next() (b []byte, given bool, err error) {
	for {
		kind, b, given, err := f.frame()
		switch {
		case err != nil:
		case f.over.Load():
			err = errEnded // and it may be a piece of a frame
		case kind == frameMessage:
			return b, given, nil
		case kind == frameAlive && len(b) == 0:
			continue
		case kind == frameEnd:
			err = readEnding(b)
			f.cancel(err)
			return nil, false, err
		default:
			err = fmt.Errorf("a frame of kind %d with %d bytes where a message belongs", kind, len(b))
		}
		f.cancel(err)
		return nil, false, context.Cause(f.ctx)
	}
}

// frame gives the next frame, of any kind.
func (f *framed) frame() (kind byte, b []byte, given bool, err error) {
	if _, err := f.in.Discard(f.held); err != nil {
		return 0, nil, false, err
	}
	f.held = 0
	head, err := f.in.Peek(frameHead)
	switch {
	case err != nil && len(head) > 0:
		return 0, nil, false, cutShort(err)
	case err != nil:
		return 0, nil, false, err
	}
	kind = head[0]
	n := int(binary.BigEndian.Uint32(head[1:]))
	most := maxOpenBytes
	if kind == frameMessage {
		most = f.most
	}
	if n > most {
		return 0, nil, false, fmt.Errorf("a frame of kind %d has %d bytes; %d are allowed", kind, n, most)
	}
	if whole := frameHead + n; whole <= f.in.Size() {
		b, err := f.in.Peek(whole)
		if err != nil {
			return 0, nil, false, cutShort(err)
		}
		f.held = whole
		return kind, b[frameHead:], false, nil
	}
	if _, err := f.in.Discard(frameHead); err != nil {
		return 0, nil, false, err
	}
	b, err = readBody(f.in, n)
	return kind, b, true, cutShort(err)
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readBody makes room as bytes come, and not as they are claimed.
func readBody(r io.Reader, n int) ([]byte, error) {
	var b []byte
	for at := 0; at < n; at = len(b) {
		more := min(n-at, max(at, 1<<20))
		b = slices.Grow(b, more)[:at+more]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// close ends the stream: calls that wait return.
func (f *framed) close() {
	f.cut(net.ErrClosed)
	f.writing.Lock() // no post begins another
	defer f.writing.Unlock()
	f.poster.finishing.Wait()
}

// cut is close for who may be writing.
func (f *framed) cut(why error) {
	f.cancel(why)
	_ = f.conn.Close() // what was on its way is lost
}
