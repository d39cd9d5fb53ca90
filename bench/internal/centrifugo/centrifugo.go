// Package centrifugo speaks the JSON protocol of Centrifugo, over a WebSocket, for the
// load generator: publishing, and subscriptions with positions and recovery.
package centrifugo

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

const (
	path       = "/connection/websocket"
	slotDigits = 6
	keyDigits  = 7
	// slotHead makes the number of a slot one without leading zeros.
	slotHead         = "1"
	handshakeTimeout = 30 * time.Second
)

// connection is one client.
type connection struct {
	conn *sock.Conn
	key  [4]byte
}

// open connects, and says more once it is.
func (c *connection) open(t load.Target, more string) (err error) {
	c.key = load.MaskKey()
	if c.conn, err = load.DialWebSocket(t, path, ""); err != nil {
		return err
	}
	if err = c.ask(`{"id":1,"connect":{}}`, `"id":1,`); err == nil && more != "" {
		err = c.ask(more, `"id":2,`)
	}
	if err != nil {
		c.conn.Cut()
	}
	return err
}

// ask says a command and waits for the answer with an id.
func (c *connection) ask(text, id string) error {
	if err := c.say(text); err != nil {
		return err
	}
	deadline, answered := time.Now().Add(handshakeTimeout), false
	for b, err := c.conn.Rest(), error(nil); ; b, err = c.conn.Fetch(deadline) {
		if err != nil {
			return err
		}
		used, err := c.lines(b, func(line []byte) error {
			answered = answered || bytes.Contains(line, []byte(id))
			return nil
		})
		if err != nil {
			return err
		}
		c.conn.Use(used)
		if answered {
			return nil
		}
	}
}

func (c *connection) say(text string) error {
	return c.conn.Write(frame.Append(nil, frame.Text, []byte(text), c.key))
}

var (
	ping   = []byte(`{}`)
	failed = []byte(`"error":{`)
)

// lines gives the lines of whole frames away, and answers pings.
func (c *connection) lines(b []byte, each func([]byte) error) (int, error) {
	return load.Texts(b, c.conn, c.key, func(payload []byte) error {
		for len(payload) > 0 {
			line, rest, _ := bytes.Cut(payload, []byte{'\n'})
			payload = rest
			var err error
			switch {
			case bytes.Equal(line, ping):
				err = c.say("{}")
			case bytes.Contains(line[:min(len(line), 40)], failed), bytes.HasPrefix(line, []byte(`{"push":{"disconnect"`)):
				err = fmt.Errorf("centrifugo says %.200s", line)
			default:
				err = each(line)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// publisher publishes, a frame a message.
type publisher struct {
	connection
	keys    int
	stencil message.Stencil
	scratch []int64
	command string
	to      load.Answers
	each    func([]byte) error
}

// Publisher publishes to a channel; with keys its name ends in the key.
func Publisher(channel string, r load.Records) load.Dialect {
	if r.Keys > 0 {
		channel += message.Blank(keyDigits)
	}
	p := &publisher{keys: r.Keys, command: `{"id":` + slotHead + message.Blank(slotDigits) + `,"publish":{"channel":"` + channel + `","data":` + message.Value(r.Bytes) + `}}`}
	p.each = p.take
	return p
}

// Open connects.
func (p *publisher) Open(t load.Target) (*sock.Conn, error) {
	if err := p.open(t, ""); err != nil {
		return nil, err
	}
	p.stencil = message.NewFrame(p.command, p.key)
	return p.conn, nil
}

// Append writes a frame.
func (p *publisher) Append(dst []byte, slot int, n int64) []byte {
	p.scratch = append(p.scratch[:0], int64(slot))
	if p.keys > 0 {
		p.scratch = append(p.scratch, n%int64(p.keys))
	}
	p.scratch = append(p.scratch, n)
	return p.stencil.Append(dst, p.scratch...)
}

// Read takes answers.
func (p *publisher) Read(b []byte, to load.Answers) (int, error) {
	p.to = to
	return p.lines(b, p.each)
}

var answerHead = []byte(`{"id":` + slotHead)

func (p *publisher) take(line []byte) error {
	rest, ok := bytes.CutPrefix(line, answerHead)
	if !ok {
		return nil
	}
	slot, ok := message.Digits(rest, slotDigits)
	if !ok {
		return fmt.Errorf("an answer of centrifugo is not as expected: %.200s", line)
	}
	return p.to.Answered(int(slot), 1, 0, nil)
}

// subscriber hears one channel.
type subscriber struct {
	connection
	channel string
	found   func(int64) error
	each    func([]byte) error
}

// Subscriber subscribes to a channel.
func Subscriber(channel string) load.Ear {
	s := &subscriber{channel: channel}
	s.each = s.hear
	return s
}

// Keyed subscribes to one channel of many.
func Keyed(channel string, key int) load.Ear {
	return Subscriber(channel + fmt.Sprintf("%0*d", keyDigits, key))
}

// Open connects and subscribes.
func (s *subscriber) Open(t load.Target) (*sock.Conn, error) {
	err := s.open(t, `{"id":2,"subscribe":{"channel":`+strconv.Quote(s.channel)+`,"positioned":true,"recoverable":true}}`)
	if err != nil {
		return nil, err
	}
	return s.conn, nil
}

// Hear finds deliveries.
func (s *subscriber) Hear(b []byte, take func(int64) error) (int, error) {
	s.found = take
	return s.lines(b, s.each)
}

var dataKey = []byte(`"data":`)

func (s *subscriber) hear(line []byte) error {
	at := bytes.Index(line, dataKey)
	if at < 0 || !bytes.HasPrefix(line, []byte(`{"push":`)) {
		return nil
	}
	n, err := message.NumberOf(line[at+len(dataKey):])
	if err != nil {
		return err
	}
	return s.found(n)
}
