package nats

import (
	"bytes"
	"fmt"
	"strconv"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// subscriber hears one subject.
type subscriber struct {
	at      Address
	subject string
	queue   string // of responders; "": none
	replies bool
	link    *link
	take    func(int64) error
	each    func(event) error
	out     []byte
}

// Subscriber subscribes to a subject, which may be where a push consumer delivers.
func Subscriber(at Address, subject string) load.Ear {
	s := &subscriber{at: at, subject: subject}
	s.each = s.hear
	return s
}

// Keyed subscribes to one subject of many.
func Keyed(at Address, subject string, key int) load.Ear {
	return Subscriber(at, subject+fmt.Sprintf("%0*d", keyDigits, key))
}

// Responder answers requests with their own value.
func Responder(at Address, subject string) load.Ear {
	s := &subscriber{at: at, subject: subject, queue: "responders", replies: true}
	s.each = s.hear
	return s
}

// Open connects and subscribes.
func (s *subscriber) Open(load.Target) (*sock.Conn, error) {
	l, err := dial(s.at, "")
	if err != nil {
		return nil, err
	}
	if err := l.ask("SUB " + s.subject + " " + s.queue + " 1\r\n"); err != nil {
		l.conn.Cut()
		return nil, err
	}
	s.link = l
	return l.conn, nil
}

// Hear finds deliveries; what is answered of them goes out in one write.
func (s *subscriber) Hear(b []byte, take func(int64) error) (int, error) {
	s.take = take
	used, err := s.link.feed(b, s.each)
	if err == nil && len(s.out) > 0 {
		err = s.link.say(s.out)
		s.out = s.out[:0]
	}
	return used, err
}

func (s *subscriber) hear(e event) error {
	if e.verb != 'M' {
		return nil
	}
	n, err := message.NumberOf(e.message.Payload)
	if err != nil {
		return err
	}
	if s.replies {
		s.out = answer(s.out, e.message.Reply, nil, e.message.Payload)
	}
	return s.take(n)
}

// answer writes a publish.
func answer(dst, subject, reply, payload []byte) []byte {
	dst = append(append(append(dst, "PUB "...), subject...), ' ')
	if len(reply) > 0 {
		dst = append(append(dst, reply...), ' ')
	}
	dst = append(strconv.AppendInt(dst, int64(len(payload)), 10), crlf...)
	return append(append(dst, payload...), crlf...)
}

// pull takes messages of a consumer in batches: the next is asked for when half of the
// one before has come, so that the server always has leave to send.
type pull struct {
	at       Address
	next     string // the subject that asks for more
	batch    int
	acks     bool // each message is acknowledged, and counts when that is confirmed
	inbox    string
	link     *link
	credit   int // messages that are asked for and have not come
	take     func(int64) error
	each     func(event) error
	out      []byte
	reply    []byte
	asked    []byte
	confirms string
}

// Pull reads a stream's consumer.
func Pull(at Address, stream, consumer string, batch int, acks bool) load.Ear {
	p := &pull{at: at, next: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer, batch: batch, acks: acks}
	p.inbox = "_INBOX." + strconv.FormatUint(uint64(load.MaskNumber()), 36)
	p.asked = fmt.Appendf(nil, `{"batch":%d}`, batch)
	p.confirms = p.inbox + ".a."
	p.each = p.hear
	return p
}

// Open connects and asks for the first batch.
func (p *pull) Open(load.Target) (*sock.Conn, error) {
	l, err := dial(p.at, "")
	if err != nil {
		return nil, err
	}
	p.link = l
	err = l.ask("SUB " + p.inbox + ".> 1\r\n")
	if err == nil {
		err = l.say(p.more(nil))
	}
	if err != nil {
		l.conn.Cut()
		return nil, err
	}
	return l.conn, nil
}

func (p *pull) more(dst []byte) []byte {
	p.credit += p.batch
	return answer(dst, []byte(p.next), []byte(p.inbox+".m"), p.asked)
}

// Hear takes messages, acknowledges them and asks for more, in one write.
func (p *pull) Hear(b []byte, take func(int64) error) (int, error) {
	p.take = take
	used, err := p.link.feed(b, p.each)
	if err != nil {
		return used, err
	}
	if p.credit <= p.batch/2 {
		p.out = p.more(p.out)
	}
	if len(p.out) > 0 {
		err = p.link.say(p.out)
		p.out = p.out[:0]
	}
	return used, err
}

var ack = []byte("+ACK")

func (p *pull) hear(e event) error {
	if e.verb != 'M' {
		return nil
	}
	m := e.message
	if number, ok := bytes.CutPrefix(m.Subject, []byte(p.confirms)); ok {
		n, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return err
		}
		return p.take(n)
	}
	if m.Header != nil && bytes.HasPrefix(m.Header, []byte("NATS/1.0 4")) {
		return fmt.Errorf("JetStream says %.200s", m.Header)
	}
	n, err := message.NumberOf(m.Payload)
	if err != nil {
		return err
	}
	p.credit--
	if !p.acks {
		return p.take(n)
	}
	p.reply = strconv.AppendInt(append(p.reply[:0], p.confirms...), n, 10)
	p.out = answer(p.out, m.Reply, p.reply, ack)
	return nil
}
