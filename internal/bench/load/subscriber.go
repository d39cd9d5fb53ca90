package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// Ear is how a connection to another server than Tidewire subscribes and hears
// deliveries.
type Ear interface {
	// Open connects and subscribes: what is published from then on arrives.
	Open(t Target) (*sock.Conn, error)
	// Hear finds deliveries and tells the number of each. An error of take ends the
	// connection.
	Hear(b []byte, take func(n int64) error) (used int, err error)
}

// subscriber is one receiving connection.
type subscriber struct {
	name  string
	share *share
	bytes int // of a value
	tally message.Tally

	conn   *sock.Conn
	key    [4]byte
	text   func([]byte) error
	events *http1.Events // of SSE; nil: WebSocket
	ear    Ear           // of another server; nil: Tidewire's
	number func(int64) error
	ended  func(error)
}

func newSubscriber(name string, to *share, bytes int, ended func(error)) *subscriber {
	return &subscriber{name: name, share: to, bytes: bytes, tally: message.NewTally(0, 1), ended: ended}
}

// expect makes it expect every strideth message from the first on.
func (s *subscriber) expect(first, stride int64) { s.tally = message.NewTally(first, stride) }

// open connects and subscribes; what is published from then on arrives.
func (s *subscriber) open(t Target, transport string, sub subscription) (err error) {
	switch transport {
	case SSE:
		var head http1.Head
		if s.conn, head, err = dialEvents(t, sub); err == nil {
			s.events = http1.NewEvents(head, s)
		}
	default:
		s.key, s.text = MaskKey(), s.lines
		s.conn, err = dialSubscriber(t, sub, s.key)
	}
	return err
}

// listen connects and subscribes to another server.
func (s *subscriber) listen(t Target, ear Ear) (err error) {
	s.ear, s.number = ear, s.count
	s.conn, err = ear.Open(t)
	return err
}

// Receive counts deliveries.
func (s *subscriber) Receive(b []byte) (used int, err error) {
	s.share.begin()
	switch {
	case s.ear != nil:
		used, err = s.ear.Hear(b, s.number)
	case s.events != nil:
		used, err = s.events.Feed(b)
	default:
		used, err = Texts(b, s.conn, s.key, s.text)
	}
	s.share.end()
	if err != nil {
		return used, err
	}
	return used, s.share.stage.advance(s.share)
}

var (
	messagesHead = []byte(`{"op":"messages"`)
	countMember  = []byte(`"count":`)
	messageEvent = []byte("message")
)

// lines counts the messages of a frame. A line before them says how many come.
func (s *subscriber) lines(payload []byte) error {
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte{'\n'})
		payload = rest
		if !bytes.HasPrefix(line, messagesHead) {
			if err := s.notice(line); err != nil {
				return err
			}
			continue
		}
		_, text, ok := bytes.Cut(line, countMember)
		if !ok {
			return fmt.Errorf("a line of messages without a count: %.200s", line)
		}
		count, err := strconv.Atoi(string(bytes.TrimRight(text, "}")))
		if err != nil {
			return fmt.Errorf("a line of messages without a count: %.200s", line)
		}
		for range count {
			if len(payload) == 0 {
				return errors.New("a frame has fewer messages than it says")
			}
			if line, payload, _ = bytes.Cut(payload, []byte{'\n'}); len(line) == 0 {
				return errors.New("a frame has an empty line among its messages")
			}
			if err := s.take(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// notice reads a line that is no message. Most only say where the subscription
// stands.
func (s *subscriber) notice(line []byte) error {
	if bytes.HasPrefix(line, []byte(`{"op":"cursor"`)) {
		return nil
	}
	n, err := readNotice(line)
	if err != nil {
		return err
	}
	switch n.Op {
	case "error":
		return n.refusal()
	case "closing", "gap":
		return n
	}
	return nil
}

// Event counts the message of an event.
func (s *subscriber) Event(name, data []byte) error {
	if !bytes.Equal(name, messageEvent) {
		return fmt.Errorf("the stream says %s: %.300s", name, data)
	}
	return s.take(data)
}

func (s *subscriber) take(line []byte) error {
	n, err := message.Number(line, s.bytes)
	if err != nil {
		return err
	}
	return s.count(n)
}

func (s *subscriber) count(n int64) error {
	lost, dupes := s.tally.Lost, s.tally.Duplicates
	fresh := s.tally.Take(n)
	s.share.deliver(n, fresh, s.tally.Lost-lost, s.tally.Duplicates-dupes)
	return nil
}

// Ended ends the load: deliveries would be missing.
func (s *subscriber) Ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed its connection")
	}
	s.ended(fmt.Errorf("%s: %w", s.name, err))
}
