package load

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/sock"
)

// Connections is a load of connections that only stand there, each with one
// subscription.
type Connections struct {
	Target    Target
	Topic     string
	Transport string // WebSocket, SSE or SSEH2
	Count     int
	OwnKeys   bool // each subscribes to a key of its own

	// Listen is of another server than Tidewire; nil: it is Tidewire.
	Listen func(connection int) Ear
}

// Held is connections that are open.
type Held struct {
	Took time.Duration // the connecting

	gone  atomic.Int64
	why   atomic.Pointer[error]
	close func()
}

// Gone is how many connections have ended by themselves, and why the first did.
func (h *Held) Gone() (int64, error) {
	if why := h.why.Load(); why != nil {
		return h.gone.Load(), *why
	}
	return h.gone.Load(), nil
}

// Cut ends them all at once and without a word, as a network does.
func (h *Held) Cut() { h.close() }

func (h *Held) ended(err error) {
	h.gone.Add(1)
	h.why.CompareAndSwap(nil, &err)
}

// Open opens the connections. On an error none is left.
func (w Connections) Open(ctx context.Context, p Progress) (*Held, error) {
	began := time.Now()
	open := w.sockets
	if w.Transport == SSEH2 {
		open = w.streams
	}
	h, err := open(ctx, p)
	if err != nil {
		return nil, err
	}
	h.Took = time.Since(began)
	return h, nil
}

func (w Connections) subscription(i int) subscription {
	s := subscription{topic: w.Topic}
	if w.OwnKeys {
		s.key = KeyName(i)
	}
	return s
}

// sockets opens WebSockets, or streams of events over HTTP/1.1.
func (w Connections) sockets(ctx context.Context, p Progress) (*Held, error) {
	crew, err := newCrew(ctx, w.Count, 0)
	if err != nil {
		return nil, err
	}
	h := &Held{close: crew.stop}
	err = crew.each(w.Count, "connecting", p, func(i int) error {
		key := MaskKey()
		x := &idle{held: h, key: key, events: w.Transport == SSE}
		var err error
		switch {
		case w.Listen != nil:
			x.ear = w.Listen(i)
			x.conn, err = x.ear.Open(w.Target)
		case x.events:
			x.conn, _, err = dialEvents(w.Target, w.subscription(i))
		default:
			x.conn, err = dialSubscriber(w.Target, w.subscription(i), key)
		}
		if err != nil {
			return err
		}
		if err := crew.loops[i%len(crew.loops)].Add(x.conn, x); err != nil {
			x.conn.Cut()
			return err
		}
		return nil
	})
	if err != nil {
		crew.stop()
		return nil, err
	}
	return h, nil
}

// idle answers pings and has no use for anything else.
type idle struct {
	held   *Held
	conn   *sock.Conn
	key    [4]byte
	events bool
	ear    Ear // of another server; nil: Tidewire's
}

// Receive drops what arrives.
func (i *idle) Receive(b []byte) (int, error) {
	switch {
	case i.ear != nil:
		return i.ear.Hear(b, func(int64) error { return nil })
	case i.events:
		return len(b), nil
	}
	return Texts(b, i.conn, i.key, func([]byte) error { return nil })
}

// Ended counts.
func (i *idle) Ended(err error) { i.held.ended(err) }

var errNoStart = errors.New("the stream ended before it said where it stands")
