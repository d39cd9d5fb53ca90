package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/sock"
)

// seat is the place of one connection in a consumer group. The goroutine that reads puts
// together what is said, and says it in one write.
type seat struct {
	crew *crew
	who  string // of whom an error speaks
	conn *sock.Conn
	key  [4]byte
	sub  string // as a string of JSON

	out   []byte
	frame []byte
}

func newSeat(c *crew, who string) seat { return seat{crew: c, who: who, key: MaskKey()} }

// open connects and joins. With a credit of 0 it is given nothing until begin.
func (s *seat) open(t Target, loop *sock.Loop, h sock.Handler, join []byte) (err error) {
	if s.conn, err = dialWebSocket(t); err != nil {
		return err
	}
	if err = s.join(join); err == nil {
		err = loop.Add(s.conn, h)
	}
	if err != nil {
		s.conn.Cut()
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

func (s *seat) join(join []byte) error {
	if err := s.say(join); err != nil {
		return err
	}
	deadline := time.Now().Add(handshakeTimeout)
	for b, err := s.conn.Rest(), error(nil); ; b, err = s.conn.Fetch(deadline) {
		if err != nil {
			return err
		}
		used, err := Texts(b, s.conn, s.key, func(payload []byte) error {
			for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
				switch n, err := readNotice(line); {
				case err != nil:
					return err
				case n.Op == "error":
					return n.refusal()
				case n.Op == "joined":
					s.sub = strconv.Quote(n.Sub)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.conn.Use(used)
		if s.sub != "" {
			return nil
		}
	}
}

// begin takes so many messages from now on.
func (s *seat) begin(credit int) error {
	return s.say(fmt.Appendf(nil, `{"op":"credit","sub":%s,"add":%d}`, s.sub, credit))
}

func (s *seat) say(payload []byte) error {
	return s.conn.Write(frame.Append(nil, frame.Text, payload, s.key))
}

// line begins one more line of what goes out.
func (s *seat) line() {
	if len(s.out) > 0 {
		s.out = append(s.out, '\n')
	}
}

// flush says what was put together.
func (s *seat) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	s.frame = frame.Append(s.frame[:0], frame.Text, s.out, s.key)
	s.out = s.out[:0]
	return s.conn.Write(s.frame)
}

// messages gives away the messages that a line announces, and their credit back.
func (s *seat) messages(head, payload []byte, each func(line []byte) error) (rest []byte, err error) {
	_, text, _ := bytes.Cut(head, countMember)
	count, ok := leading(text)
	if !ok {
		return nil, fmt.Errorf("a line of messages without a count: %.200s", head)
	}
	for range count {
		var line []byte
		line, payload, _ = bytes.Cut(payload, []byte{'\n'})
		if err := each(line); err != nil {
			return nil, err
		}
	}
	s.line()
	s.out = fmt.Appendf(s.out, `{"op":"credit","sub":%s,"add":%d}`, s.sub, count)
	return payload, nil
}

// read works through the lines of a frame: each message goes to take, and done hears when
// all of a line of messages have come. Lines of other kinds go to other.
func (s *seat) read(payload []byte, take func(line []byte) error, done func(), other func(line []byte) error) error {
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte{'\n'})
		payload = rest
		var err error
		if bytes.HasPrefix(line, messagesHead) {
			if payload, err = s.messages(line, payload, take); err == nil {
				done()
			}
		} else {
			err = other(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// acknowledge says that records are done with; with an id it is confirmed.
func (s *seat) acknowledge(id, partition int64, all []place) {
	s.line()
	s.out = append(s.out, `{"op":"ack",`...)
	if id > 0 {
		s.out = append(strconv.AppendInt(append(s.out, `"id":`...), id, 10), ',')
	}
	s.out = fmt.Appendf(s.out, `"sub":%s,"partition":%d,"offsets":[`, s.sub, partition)
	for i, p := range all {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = strconv.AppendInt(s.out, p.offset, 10)
	}
	s.out = append(s.out, ']', '}')
}

// notice reads a line that is not about messages.
func (s *seat) notice(line []byte) error {
	n, err := readNotice(line)
	switch {
	case err != nil:
		return err
	case n.Op == "error":
		return n.refusal()
	case n.Op == "closing":
		return n
	}
	return nil
}

// Ended ends the load: a seat that is empty would leave figures of another.
func (s *seat) Ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed its connection")
	}
	s.crew.fail(fmt.Errorf("%s: %w", s.who, err))
}

// place is where a record is, and its number.
type place struct{ offset, number int64 }

var (
	partitionKey = []byte(`"partition":`)
	offsetKey    = []byte(`"offset":`)
	numberKey    = []byte(`"value":{"n":"`)
)

// placeOf reads where a message is.
func placeOf(line []byte) (partition int64, p place, err error) {
	_, text, _ := bytes.Cut(line, partitionKey)
	partition, ok := leading(text)
	_, text, _ = bytes.Cut(text, offsetKey)
	offset, there := leading(text)
	_, text, _ = bytes.Cut(text, numberKey)
	number, known := leading(text)
	if !ok || !there || !known {
		return 0, p, fmt.Errorf("a message arrived that this load did not publish: %.200s", line)
	}
	return partition, place{offset, number}, nil
}

// leading reads the number that a text begins with.
func leading(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n, ok = 10*n+int64(c-'0'), true
	}
	return n, ok
}
