package session

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/publish"
	"tidewire/gateway/reply"
	"tidewire/gateway/turn"
)

// closeVanished counts connections that ended without a closing handshake.
const closeVanished = 1006

// session is one WebSocket connection.
type session struct {
	m       *Manager
	id      string
	address string
	ws      *websocket.Conn
	socket  *socket

	slot turn.Slot // its place with the workers

	outlet  outlet
	writing sync.WaitGroup // until there are no more turns

	ended   chan struct{} // closed when the connection is of no use any more
	reading atomic.Bool   // a frame is waited for, so silence is the client's
	release func()        // its seat

	mu       sync.Mutex
	relief   sync.Cond // on mu: less is in flight or unwritten, or it is over
	out      []byte    // the outbox: lines to write, with newlines between
	pong     []byte    // payload of a ping to answer; nil: none
	inFlight int       // publishes
	flying   int       // their bytes
	verdict  *verdict  // how the connection is to end; the first one counts
	draining bool
	over     bool // ended is closed

	subs    []*subscription
	members []*membership

	questions   map[*question]struct{} // requests without a reply
	acceptTimer *time.Timer            // sends what says that they are kept; nil: none was asked
	accepting   bool                   // it is set

	beat    time.Duration // how often the client is pinged
	lastSub int
	ready   []*subscription // that may have something to read
	gone    []*subscription // unsubscribed; the next turn lets go of them

	arrived func(publish.Result) // arrive, made once
	bad     int                  // lines in a row; the reader's

	signs     int       // pings and pongs of the client since signsFrom; the reader's
	signsFrom time.Time // zero: no maxControls of them have come yet

	grant     *access.Grant // what the caller may do; nil: not known yet. The reader's
	client    string        // whose rate its publishes count against; the reader's
	known     atomic.Bool   // grant is not nil
	reference string        // of the subscription to begin once it is; the reader's
	conn      *connection.Connection
}

func newSession(m *Manager, address string) *session {
	s := &session{m: m, id: connectionID(), address: address, ended: make(chan struct{}), beat: m.cfg.Ping}
	s.relief.L = &s.mu
	s.arrived = s.arrive
	m.cfg.Crew.Join(&s.slot, s)
	s.writing.Add(1)
	// A random phase, so that a node's connections do not beat together.
	s.outlet.heardAt = time.Now()
	s.outlet.pingAt = s.outlet.heardAt.Add(1 + rand.N(m.cfg.Ping))
	s.giveBack(rest)
	return s
}

func (s *session) logger() *slog.Logger {
	return s.m.cfg.Logger.With("connection", s.id, "address", s.address)
}

// Run serves the connection to its end, or until it has been idle from one ping
// to the next: then it sleeps until there is something to read. Where that cannot be,
// another goroutine goes on, whose stack is new and so small. It is the reader.
func (s *session) Run() {
	err := s.read()
	if errors.Is(err, errIdle) {
		if !s.m.cfg.Crew.Sleep(&s.socket.Socket, s, &s.m.open) {
			s.m.open.Go(s.Run)
		}
		return
	}
	s.end()
	_ = s.socket.Close()
	s.writing.Wait()
	s.forsake()
	s.part(s.outlet.code == 0 && websocket.CloseStatus(err) == reply.CloseNormal)
	s.closeAll()
	_ = s.ws.CloseNow() // frees what the library holds
	code := s.outlet.code
	if code == 0 {
		code = closeVanished
	}
	if status := websocket.CloseStatus(err); status != -1 && code == closeVanished {
		code = int(status)
	}
	s.m.metrics.closes.WithLabelValues(codeLabel(code)).Inc()
	s.logger().Debug("a connection ended", "code", code, "err", err)
	s.conn.Leave()
	s.m.remove(s)
	s.m.cfg.Deliveries.Connections.WithLabelValues(deliver.WebSocket).Dec()
	s.release()
}

// Over says that the connection is of no use any more.
func (s *session) Over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
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
		s.m.cfg.Crew.Wake(&s.socket.Socket) // to see that it is over
	}
	s.schedule()
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
	for _, x := range s.members {
		x.stop() // their sessions go on: they join again elsewhere
	}
	s.mu.Unlock()
	s.schedule()
}

// shut lets the writer close the connection with a code, after what is in the
// outbox.
func (s *session) shut(code int, reason string) {
	s.mu.Lock()
	first := s.verdict == nil
	if first {
		s.verdict = &verdict{code, reply.Reason(reason)}
	}
	s.mu.Unlock()
	if first {
		time.AfterFunc(shutTime, s.cut) // however slow its client takes what comes before the close
	}
	s.schedule()
}

// push adds a line to the outbox. What is pushed is bounded by who pushes:
// answers by the reader's back-pressure, cursors by their rate.
func (s *session) push(line []byte) {
	s.mu.Lock()
	s.pushLocked(line)
	s.mu.Unlock()
	s.schedule()
}

func (s *session) pushLocked(line []byte) {
	if s.over {
		return
	}
	s.out = append(s.separatedLocked(), line...)
}

// separatedLocked is the outbox, ready for another line.
func (s *session) separatedLocked() []byte {
	switch {
	case s.out == nil:
		return make([]byte, 0, answerBytes)
	case len(s.out) > 0:
		return append(s.out, '\n')
	}
	return s.out
}

// answerBytes has room for the answer to one publish.
const answerBytes = 192

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
