package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// open connects to the node for one stream, which ends with ctx. Where it fails nothing
// of the stream was sent.
func (r *Peer) open(ctx context.Context, method string) (*framed, error) {
	if !r.used.Load() {
		r.used.Store(true)
	}
	f, err := r.dialStream(ctx, method)
	r.peers.cfg.Metrics.opened(method, f, err)
	return f, err
}

func (r *Peer) dialStream(ctx context.Context, method string) (*framed, error) {
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := r.peers.cfg.Dialer.DialContext(limited, KindRPC, r.address)
	if err != nil {
		return nil, err
	}
	f := newFramed(ctx, conn, r.peers.cfg.Metrics)
	if !r.peers.lines.add(f) {
		f.close()
		return nil, errClosed
	}
	stop := context.AfterFunc(r.ctx, f.close)
	context.AfterFunc(f.ctx, func() {
		stop()
		f.close()
		r.peers.lines.remove(f)
	})
	if err := f.greet(opening{method, r.identity().String()}); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// greet says what is opened, and waits until it is: a process that is paused has its
// connections taken in by its machine.
func (f *framed) greet(o opening) error {
	if err := f.conn.SetDeadline(time.Now().Add(connectLimit)); err != nil {
		return err
	}
	var e encoder
	o.encode(&e)
	f.writing.Lock()
	_, err := f.writeLocked(append([][]byte{[]byte(preface)}, e.frame(frameOpen)...))
	f.writing.Unlock()
	if err != nil {
		return err
	}
	kind, b, _, err := f.frame()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection unasked: it runs a version that does not know these streams, or has too many connections")
	case err != nil:
		return err
	case kind == frameEnd:
		return readEnding(b)
	case kind != frameOpen:
		return fmt.Errorf("a frame of kind %d where a stream is to be opened", kind)
	}
	return f.conn.SetDeadline(time.Time{})
}
