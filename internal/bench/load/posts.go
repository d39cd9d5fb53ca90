package load

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"

	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// posts publishes over HTTP/1.1, one request in flight: a record, or lines.
type posts struct {
	r       Records
	lines   bool
	stencil message.Stencil
	scratch []int64
	body    []byte
}

func newPosts(r Records, lines bool, t Target) *posts {
	p := &posts{r: r, lines: lines}
	contentType, query, body := "application/json", "acks="+r.Acks, message.Value(r.Bytes)
	if lines {
		contentType = "application/x-ndjson"
		body = strings.Repeat("{"+r.keyMember()+`"value":`+message.Value(r.Bytes)+"}\n", r.Batch)
	} else if r.Keys > 0 {
		query += "&key=k" + message.Blank(keyDigits)
	}
	p.stencil = message.NewStencil("POST /topics/" + url.PathEscape(r.Topic) + "?" + query + " HTTP/1.1\r\nHost: " + t.Host + "\r\n" + t.bearer() + "Content-Type: " + contentType +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	return p
}

// Open connects.
func (p *posts) Open(t Target) (*sock.Conn, error) { return sock.Dial(t.Addr) }

// records is how many one request has.
func (p *posts) records() int {
	if p.lines {
		return p.r.Batch
	}
	return 1
}

// Append writes a request.
func (p *posts) Append(dst []byte, _ int, n int64) []byte {
	p.scratch = p.scratch[:0]
	for i := range p.records() {
		p.scratch = p.r.numbers(p.scratch, n*int64(p.records())+int64(i))
	}
	return p.stencil.Append(dst, p.scratch...)
}

var offsetMember = []byte(`"offset":`)

// Read takes whole answers.
func (p *posts) Read(b []byte, l Answers) (used int, err error) {
	for used < len(b) {
		r, scratch, whole, err := http1.ParseResponse(b[used:], p.body)
		p.body = scratch
		if err != nil || !whole {
			return used, err
		}
		used += r.Size
		kept, refused := p.records(), 0
		switch {
		case r.Status >= 300:
			kept, refused = 0, kept
		case p.lines && r.Status != 202 && r.Status != 201:
			kept = bytes.Count(r.Body, offsetMember)
			refused = p.records() - kept
		}
		var why error
		if refused > 0 {
			why = newRefusal(r.Status, 0, r.Body)
		}
		if err := l.Answered(0, kept, refused, why); err != nil {
			return used, err
		}
	}
	return used, nil
}
