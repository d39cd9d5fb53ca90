package session

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/reply"
)

// closeVanished counts connections that ended without a closing handshake.
const closeVanished = 1006

// session is one WebSocket connection.
type session struct {
	m       *Manager
	id      string
	address string
	log     *slog.Logger
	ws      *websocket.Conn
	socket  *socket

	wake    chan struct{} // room for one: the writer has something to look at
	ended   chan struct{} // closed when the connection is of no use any more
	reading atomic.Bool   // a frame is waited for, so silence is the client's

	mu       sync.Mutex
	relief   *sync.Cond // on mu: less is in flight or unwritten, or it is over
	out      []byte     // the outbox: lines to write, with newlines between
	pong     []byte     // payload of a ping to answer; nil: none
	inFlight int        // publishes
	flying   int        // their bytes
	verdict  *verdict   // how the connection is to end; the first one counts
	draining bool
	over     bool // ended is closed

	subs    map[string]*subscription
	lastSub int
	ready   []*subscription // that may have something to read
	gone    []*subscription // unsubscribed; the writer lets go of them

	bad int // lines in a row; the reader's

	grant     *access.Grant // what the caller may do; nil: not known yet. The reader's
	client    string        // whose rate its publishes count against; the reader's
	known     atomic.Bool   // grant is not nil
	reference string        // of the subscription to begin once it is; the reader's
	conn      *connection.Connection
}

// verdict is how the server ends a connection.
type verdict struct {
	code   int
	reason string
}

func newSession(m *Manager, address string) *session {
	s := &session{
		m: m, id: connectionID(), address: address,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		subs: map[string]*subscription{},
	}
	s.relief = sync.NewCond(&s.mu)
	s.log = m.cfg.Logger.With("connection", s.id, "address", address)
	return s
}

// run serves the connection to its end. It is the reader; it owns the writer.
func (s *session) run(ctx context.Context, cancel context.CancelFunc) {
	defer s.conn.Leave()
	var writer sync.WaitGroup
	code := closeVanished
	writer.Go(func() {
		w := newWriter(s)
		defer w.stop()
		if by := w.run(ctx); by != 0 {
			code = by
		}
		s.end()
		cancel() // wakes the reader, whatever it waits for
		_ = s.socket.Close()
	})
	err := s.read(ctx)
	s.end()
	writer.Wait()
	s.closeAll()
	_ = s.ws.CloseNow() // frees what the library holds
	if status := websocket.CloseStatus(err); status != -1 && code == closeVanished {
		code = int(status)
	}
	s.m.metrics.closes.WithLabelValues(codeLabel(code)).Inc()
	s.log.Debug("a connection ended", "code", code, "err", err)
}

// codeLabel keeps what clients choose freely out of the labels.
func codeLabel(code int) string {
	switch {
	case code >= 1000 && code <= 1015, code >= reply.CloseSlowConsumer && code <= reply.CloseExpired, code >= reply.CloseUnauthorized && code <= reply.CloseLimit:
		return strconv.Itoa(code)
	}
	return "other"
}

// end marks the connection as of no use; whoever waits for it stops.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.ended)
		s.relief.Broadcast()
	}
}

// cut ends the connection at once.
func (s *session) cut() {
	s.end()
	_ = s.socket.Close()
}

// drain lets the writer say goodbye.
func (s *session) drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.signal()
}

// shut lets the writer close the connection with a code, after what is in the
// outbox.
func (s *session) shut(code int, reason string) {
	s.mu.Lock()
	if s.verdict == nil {
		s.verdict = &verdict{code, reply.Reason(reason)}
	}
	s.mu.Unlock()
	s.signal()
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // the writer has yet to look
	}
}

// push adds a line to the outbox. What is pushed is bounded by who pushes:
// answers by the reader's back-pressure, cursors by their rate.
func (s *session) push(line []byte) {
	s.mu.Lock()
	s.pushLocked(line)
	s.mu.Unlock()
	s.signal()
}

func (s *session) pushLocked(line []byte) {
	if s.over {
		return
	}
	if len(s.out) > 0 {
		s.out = append(s.out, '\n')
	}
	s.out = append(s.out, line...)
}

// pinged answers a client's ping by the writer: the library would wait for the
// socket itself and give up the connection too early. Only the newest ping
// needs an answer.
func (s *session) pinged(_ context.Context, payload []byte) bool {
	s.mu.Lock()
	s.pong = append(make([]byte, 0, len(payload)), payload...)
	s.mu.Unlock()
	s.signal()
	return false
}

// roomy waits until the reader may take in another line: the client takes its
// answers, and not too much is in flight. It is false when the connection ended.
func (s *session) roomy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && s.verdict == nil && (len(s.out) > maxOutboxBytes || s.inFlight >= MaxInFlightPublishes || s.flying >= maxInFlightBytes) {
		s.relief.Wait()
	}
	return !s.over && s.verdict == nil
}
