package floor

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// fan writes what is published to all that have subscribed, with nothing between
// but the kernel and a loop: as many workers as there are processors own the
// subscribers by shares, and write what has come since their last look in one
// frame, encoded once, straight to each socket.
type fan struct {
	workers []*fanWorker
	run     int // messages that are written together

	mu   sync.Mutex
	next int // worker of the next subscriber
}

type fanWorker struct {
	wake chan struct{} // room for one

	mu      sync.Mutex
	lines   []byte // that wait, with newlines between
	count   int
	sockets []*fanSocket
}

type fanSocket struct {
	conn net.Conn
	raw  syscall.RawConn
}

func newFan(run int) *fan {
	f := &fan{run: run}
	for range runtime.GOMAXPROCS(0) {
		f.workers = append(f.workers, &fanWorker{wake: make(chan struct{}, 1)})
	}
	return f
}

// serveAll writes until ctx ends.
func (f *fan) serveAll(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range f.workers {
		wg.Go(func() { w.run(ctx, f.run) })
	}
	wg.Wait()
}

var (
	subscribeOp = []byte(`{"op":"subscribe"`)
	publishOp   = []byte(`{"op":"publish"`)
	valueMember = []byte(`"value":`)
)

const (
	subscribed = `{"op":"subscribed","id":1,"sub":"s1","cursor":"c","recovered":false}`
	// lineHead is what a real message has in front of its value.
	lineHead = `{"topic":"bench-00000000","partition":0,"offset":1000000,"timestamp":"2026-01-01T00:00:00.000Z","key":null,"content_type":"application/json","headers":{},"value":`
)

// subscribe gives a socket to a worker.
func (f *fan) subscribe(conn net.Conn) error {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return net.ErrClosed // a listener of this package gives nothing else
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	f.mu.Lock()
	w := f.workers[f.next%len(f.workers)]
	f.next++
	f.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets = append(w.sockets, &fanSocket{conn, raw})
	return nil
}

// publish hands the value of a publish on to all.
func (f *fan) publish(frame []byte) {
	_, value, ok := bytes.Cut(frame, valueMember)
	if !ok {
		return
	}
	for _, w := range f.workers {
		w.mu.Lock()
		w.lines = append(append(append(w.lines, '\n'), lineHead...), value...)
		w.count++
		w.mu.Unlock()
		select {
		case w.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

func (w *fanWorker) run(ctx context.Context, run int) {
	var frame, lines []byte
	var count int
	var sockets []*fanSocket
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		if w.count < run {
			w.mu.Unlock()
			continue
		}
		lines, w.lines = w.lines, lines[:0]
		count, w.count = w.count, 0
		sockets = append(sockets[:0], w.sockets...)
		w.mu.Unlock()
		payload := append([]byte(`{"op":"messages","sub":"s1","count":`+strconv.Itoa(count)+"}"), lines...)
		frame = append(frameHead(frame[:0], len(payload)), payload...)
		for _, s := range sockets {
			s.write(frame)
		}
	}
}

// frameHead begins a server's text frame.
func frameHead(b []byte, n int) []byte {
	switch b = append(b, 0x81); {
	case n < 126:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
}

// write writes without waiting; what the socket does not take it waits for, which
// a client that reads does not let happen.
func (s *fanSocket) write(b []byte) {
	n := 0
	_ = s.raw.Control(func(fd uintptr) { // an error is that of a connection that is gone
		n, _ = syscall.Write(int(fd), b)
	})
	if n = max(n, 0); n < len(b) {
		_, _ = s.conn.Write(b[n:])
	}
}
