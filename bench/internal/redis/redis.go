// Package redis speaks RESP to a stream of Redis for the load generator: XADD, reading
// with XRANGE, and a consumer group with XREADGROUP and XACK.
package redis

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

var crlf = []byte("\r\n")

// skip is the size of the first answer of b; whole is false where more bytes are needed.
func skip(b []byte) (size int, whole bool) {
	end := bytes.Index(b, crlf)
	if end < 1 {
		return 0, false
	}
	size = end + len(crlf)
	n, _ := strconv.Atoi(string(b[1:end]))
	switch b[0] {
	case '$':
		if n < 0 {
			return size, true
		}
		size += n + len(crlf)
		return size, len(b) >= size
	case '*':
		for range max(n, 0) {
			k, ok := skip(b[size:])
			if !ok {
				return 0, false
			}
			size += k
		}
	}
	return size, true
}

// bulks gives the strings of an answer away, in their order.
func bulks(b []byte, each func([]byte) error) error {
	for len(b) > 0 {
		end := bytes.Index(b, crlf)
		n, _ := strconv.Atoi(string(b[1:end]))
		next := end + len(crlf)
		if b[0] == '$' && n >= 0 {
			if err := each(b[next : next+n]); err != nil {
				return err
			}
			next += n + len(crlf)
		}
		b = b[next:]
	}
	return nil
}

// command writes a command.
func command(dst []byte, parts ...string) []byte {
	dst = append(strconv.AppendInt(append(dst, '*'), int64(len(parts)), 10), crlf...)
	for _, p := range parts {
		dst = append(strconv.AppendInt(append(dst, '$'), int64(len(p)), 10), crlf...)
		dst = append(append(dst, p...), crlf...)
	}
	return dst
}

// Do says one command over a connection of its own, and waits for the answer.
func Do(t load.Target, parts ...string) error {
	c, err := sock.Dial(t.Addr)
	if err != nil {
		return err
	}
	defer c.Cut()
	if err := c.Write(command(nil, parts...)); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		b, err := c.Fetch(deadline)
		if err != nil {
			return err
		}
		if size, whole := skip(b); whole {
			return failure(b[:size])
		}
	}
}

func failure(answer []byte) error {
	if answer[0] == '-' {
		return fmt.Errorf("redis says %.200s", answer)
	}
	return nil
}

// publisher adds records; answers come in the order of commands.
type publisher struct {
	stencil message.Stencil
	order   []int
}

// Publisher adds records to the stream that is their topic.
func Publisher(r load.Records) load.Dialect {
	return &publisher{stencil: message.NewStencil(string(command(nil, "XADD", r.Topic, "*", "d", message.Value(r.Bytes))))}
}

// Open connects.
func (p *publisher) Open(t load.Target) (*sock.Conn, error) { return sock.Dial(t.Addr) }

// Append writes a command.
func (p *publisher) Append(dst []byte, slot int, n int64) []byte {
	p.order = append(p.order, slot)
	return p.stencil.Append(dst, n)
}

// Read takes answers.
func (p *publisher) Read(b []byte, to load.Answers) (used int, err error) {
	done := 0
	for {
		size, whole := skip(b[used:])
		if !whole {
			break
		}
		kept, refused, why := 1, 0, failure(b[used:used+size])
		if why != nil {
			kept, refused = 0, 1
		}
		used += size
		if done == len(p.order) {
			return used, fmt.Errorf("redis answered what nobody asked")
		}
		slot := p.order[done]
		done++
		if err := to.Answered(slot, kept, refused, why); err != nil {
			return used, err
		}
	}
	p.order = append(p.order[:0], p.order[done:]...)
	return used, nil
}

// reader reads the stream from its beginning, or as one consumer of a group that
// acknowledges what it gets.
type reader struct {
	stream          string
	group, consumer string // "": it reads the stream itself
	count           int
	conn            *sock.Conn
	last            string
	ids             []string
	numbers         []int64 // that wait for the acknowledgement to be confirmed
	acking          bool
}

// History reads a stream, so many records at a time.
func History(stream string, count int) load.Ear { return &reader{stream: stream, count: count} }

// Consumer is one of a group, and has so many records in hand.
func Consumer(stream, group, name string, count int) load.Ear {
	return &reader{stream: stream, group: group, consumer: name, count: count}
}

// Open connects and asks for the first records.
func (r *reader) Open(t load.Target) (c *sock.Conn, err error) {
	if r.conn, err = sock.Dial(t.Addr); err != nil {
		return nil, err
	}
	if err := r.conn.Write(r.ask(nil)); err != nil {
		r.conn.Cut()
		return nil, err
	}
	return r.conn, nil
}

func (r *reader) ask(dst []byte) []byte {
	count := strconv.Itoa(r.count)
	if r.group == "" {
		from := "-"
		if r.last != "" {
			from = "(" + r.last
		}
		return command(dst, "XRANGE", r.stream, from, "+", "COUNT", count)
	}
	return command(dst, "XREADGROUP", "GROUP", r.group, r.consumer, "COUNT", count, "BLOCK", "1000", "STREAMS", r.stream, ">")
}

// Hear takes whole answers.
func (r *reader) Hear(b []byte, take func(int64) error) (used int, err error) {
	for {
		size, whole := skip(b[used:])
		if !whole {
			return used, nil
		}
		answer := b[used : used+size]
		used += size
		if err := failure(answer); err != nil {
			return used, err
		}
		if err := r.answer(answer, take); err != nil {
			return used, err
		}
	}
}

func (r *reader) answer(answer []byte, take func(int64) error) error {
	if r.acking && answer[0] == ':' {
		r.acking = false
		for _, n := range r.numbers {
			if err := take(n); err != nil {
				return err
			}
		}
		return nil
	}
	r.numbers, r.ids = r.numbers[:0], r.ids[:0]
	before := ""
	err := bulks(answer, func(s []byte) error {
		if before == "d" {
			n, err := message.NumberOf(s)
			r.numbers = append(r.numbers, n)
			before = ""
			return err
		}
		if string(s) == "d" {
			r.last = before
			r.ids = append(r.ids, before)
		}
		before = string(s)
		return nil
	})
	if err != nil {
		return err
	}
	if len(r.numbers) == 0 {
		if r.group == "" {
			return nil // that was the end
		}
		return r.conn.Write(r.ask(nil))
	}
	if r.group == "" {
		for _, n := range r.numbers {
			if err := take(n); err != nil {
				return err
			}
		}
		return r.conn.Write(r.ask(nil))
	}
	r.acking = true
	return r.conn.Write(r.ask(command(nil, append([]string{"XACK", r.stream, r.group}, r.ids...)...)))
}
