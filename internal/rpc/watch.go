package rpc

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// restLooks is for so many looks nothing was sent when an alive frame is.
	restLooks = 1
	// silentLooks is at so many looks in a row nothing had come of who is taken for dead.
	silentLooks = 6
	// aliveLimit is how long an alive frame may wait for room.
	aliveLimit = 2 * time.Millisecond
)

var errSilent = errors.New("it has fallen silent")

// watch is what one look at a stream keeps for the next.
type watch struct {
	writes, reads uint64
	rest, silent  int // looks in a row
}

// seen takes what a look found, and says what follows from it. What counts are looks and
// not the clock: a process that was paused takes nobody else for dead for it.
func (w *watch) seen(writes, reads uint64) (dead, alive bool) {
	stuck := writes%2 == 1 && writes == w.writes
	w.rest++
	if writes != w.writes {
		w.rest = 0
	}
	// Who does not read is busy with what came, and reads on, unless it waits for an end
	// that does not read either.
	w.silent++
	if reads != w.reads || reads%2 == 0 && !stuck {
		w.silent = 0
	}
	w.writes, w.reads = writes, reads
	return w.silent >= silentLooks, w.rest >= restLooks && !stuck
}

// look is called every lookEvery by one goroutine. It says to the other end that this
// one lives, and closes a stream of whose other end nothing comes.
func (f *framed) look() (closed bool) {
	dead, alive := f.watch.seen(f.writes.Load(), f.reads.Load())
	switch {
	case dead:
		f.cut(errSilent) // nobody waits for what is under way on it
	case alive && !f.over.Load():
		f.alive()
	}
	return dead
}

// alive sends an alive frame, if that takes no time.
func (f *framed) alive() {
	if !f.writing.TryLock() {
		return
	}
	defer f.writing.Unlock()
	if f.conn.SetWriteDeadline(time.Now().Add(aliveLimit)) != nil {
		return // it is closed
	}
	n, err := f.writeLocked(net.Buffers{{frameAlive, 0, 0, 0, 0}})
	if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) { // else it is broken, as who receives finds
		err = f.conn.SetWriteDeadline(time.Time{})
	}
	if n > 0 && err != nil {
		f.cut(net.ErrClosed)
	}
}

// lines are the streams of one end of a node, and who looks at them.
type lines struct {
	silent func(*framed) // is told of those that were closed

	mu      sync.Mutex
	set     map[*framed]struct{}
	closed  bool
	looking bool // a goroutine is, while there are any
	loops   sync.WaitGroup
	fewer   chan struct{} // room for one: there may be none left
}

func newLines(silent func(*framed)) *lines {
	return &lines{silent: silent, set: map[*framed]struct{}{}, fewer: make(chan struct{}, 1)}
}

// add is false where no more are taken.
func (l *lines) add(f *framed) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.set[f] = struct{}{}
	if !l.looking {
		l.looking = true
		l.loops.Go(l.look)
	}
	return true
}

func (l *lines) remove(f *framed) {
	l.mu.Lock()
	delete(l.set, f)
	l.mu.Unlock()
	select {
	case l.fewer <- struct{}{}:
	default:
	}
}

func (l *lines) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		l.mu.Lock()
		all := slices.Collect(maps.Keys(l.set))
		l.looking = len(all) > 0
		l.mu.Unlock()
		if len(all) == 0 {
			return
		}
		select {
		case <-tick.C:
			for _, f := range all {
				if f.look() {
					l.silent(f)
				}
			}
		case <-l.fewer:
		}
	}
}

// close ends all streams, takes no more, and returns once all are removed.
func (l *lines) close() {
	l.mu.Lock()
	l.closed = true
	all := slices.Collect(maps.Keys(l.set))
	l.mu.Unlock()
	for _, f := range all {
		f.close()
	}
	l.loops.Wait()
}
