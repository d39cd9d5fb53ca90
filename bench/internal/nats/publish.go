package nats

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// slotDigits are those of a slot in the subject of a reply.
const slotDigits = 6

// keyDigits are those of a subject of many.
const keyDigits = 7

// publisher publishes to a subject. Where it asks, each publish has a reply subject that
// names its slot: JetStream answers there once the record is kept, and a responder there
// with its reply. Otherwise the server's own +OK is the answer, in the order of publishes.
type publisher struct {
	at      Address
	asks    bool
	echo    bool // the reply is the request's own value
	bytes   int
	keys    int
	inbox   string
	stencil message.Stencil
	numbers []int64 // of what is in flight, by slot
	scratch []int64
	link    *link
	order   []int // slots that wait for +OK
	to      load.Answers
	each    func(event) error
	text    []byte
}

// JetStream publishes records to a stream and waits until each is kept.
func JetStream(at Address, subject string, r load.Records) load.Dialect {
	return newPublisher(at, subject, r, true)
}

// Core publishes to whoever is subscribed; the server has taken the message in. With
// keys the subject ends in the key.
func Core(at Address, subject string, r load.Records) load.Dialect {
	return newPublisher(at, subject, r, false)
}

// Requests asks whoever is subscribed, and waits for the reply.
func Requests(at Address, subject string, r load.Records, window int) load.Dialect {
	p := newPublisher(at, subject, r, true)
	p.echo, p.numbers = true, make([]int64, window)
	return p
}

func newPublisher(at Address, subject string, r load.Records, asks bool) *publisher {
	p := &publisher{at: at, asks: asks, bytes: r.Bytes, keys: r.Keys, inbox: "_INBOX." + strconv.FormatUint(uint64(load.MaskNumber()), 36)}
	if r.Keys > 0 {
		subject += message.Blank(keyDigits)
	}
	reply := ""
	if asks {
		reply = p.inbox + "." + message.Blank(slotDigits) + " "
	}
	p.stencil = message.NewStencil("PUB " + subject + " " + reply + strconv.Itoa(r.Bytes) + "\r\n" + message.Value(r.Bytes) + "\r\n")
	p.each = p.take
	return p
}

// Open connects.
func (p *publisher) Open(load.Target) (*sock.Conn, error) {
	options, sub := `,"verbose":true`, ""
	if p.asks {
		options, sub = "", "SUB "+p.inbox+".* 1\r\n"
	}
	l, err := dial(p.at, options)
	if err != nil {
		return nil, err
	}
	p.link = l
	if sub != "" {
		if err := l.ask(sub); err != nil {
			l.conn.Cut()
			return nil, err
		}
	}
	return l.conn, nil
}

// Append writes a publish. Over a WebSocket each is a frame.
func (p *publisher) Append(dst []byte, slot int, n int64) []byte {
	p.scratch = p.scratch[:0]
	if p.keys > 0 {
		p.scratch = append(p.scratch, n%int64(p.keys))
	}
	if p.asks {
		p.scratch = append(p.scratch, int64(slot))
	} else {
		p.order = append(p.order, slot)
	}
	if p.numbers != nil {
		p.numbers[slot] = n
	}
	p.scratch = append(p.scratch, n)
	if !p.link.web {
		return p.stencil.Append(dst, p.scratch...)
	}
	p.text = p.stencil.Append(p.text[:0], p.scratch...)
	return frame.Append(dst, frame.Binary, p.text, p.link.key)
}

// Read takes answers.
func (p *publisher) Read(b []byte, to load.Answers) (int, error) {
	p.to = to
	return p.link.feed(b, p.each)
}

var refusedKey = []byte(`"error":`)

func (p *publisher) take(e event) error {
	switch {
	case e.verb == 'K' && !p.asks && len(p.order) > 0:
		slot := p.order[0]
		p.order = append(p.order[:0], p.order[1:]...)
		return p.to.Answered(slot, 1, 0, nil)
	case e.verb != 'M':
		return nil
	}
	m := e.message
	digits := m.Subject[bytes.LastIndexByte(m.Subject, '.')+1:]
	slot, ok := message.Digits(digits, slotDigits)
	switch {
	case !ok:
		return fmt.Errorf("a reply of nats-server is not as expected: %.200s", m.Subject)
	case m.Header != nil && bytes.Contains(m.Header, []byte(" 503")):
		return p.to.Answered(int(slot), 0, 1, errNoResponders)
	case p.echo:
		n, err := message.NumberOf(m.Payload)
		if err != nil {
			return err
		}
		if n != p.numbers[slot] {
			return errors.New("a request got the reply to another one")
		}
	case bytes.Contains(m.Payload, refusedKey):
		return p.to.Answered(int(slot), 0, 1, fmt.Errorf("JetStream says %.300s", m.Payload))
	}
	return p.to.Answered(int(slot), 1, 0, nil)
}
