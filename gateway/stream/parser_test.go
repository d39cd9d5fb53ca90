package stream_test

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
)

// sse is one event as a browser would dispatch it, or a comment. It is written
// from the HTML standard (9.2.6), not from the code under test.
type sse struct {
	name, data string
	lastID     string // of the stream, once this was read
	ownID      bool   // an id field stood in this block
	comment    bool
	dispatched bool // false: a block without data
	retry      int  // ms; 0: none
}

type sseReader struct {
	r      io.Reader
	buf    []byte
	lastID string
	block  sse
	data   []string
	id     string
	began  bool
}

func newSSEReader(r io.Reader) *sseReader { return &sseReader{r: r} }

// next is the next block or comment.
func (p *sseReader) next() (sse, error) {
	for {
		line, err := p.line()
		if err != nil {
			return sse{}, err
		}
		if line == "" {
			if !p.began {
				continue
			}
			p.lastID = p.id
			b := p.block
			b.data, b.lastID, b.dispatched = strings.Join(p.data, "\n"), p.lastID, len(p.data) > 0
			if b.name == "" && b.dispatched {
				b.name = "message"
			}
			p.block, p.data, p.began = sse{}, nil, false
			return b, nil
		}
		field, value, colon := strings.Cut(line, ":")
		if colon && field == "" {
			return sse{comment: true, data: value, lastID: p.lastID}, nil
		}
		value = strings.TrimPrefix(value, " ")
		p.began = true
		switch field {
		case "event":
			p.block.name = value
		case "data":
			p.data = append(p.data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				p.id, p.block.ownID = value, true
			}
		case "retry":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				p.block.retry = n
			}
		}
	}
}

// line reads one line, ended by LF, CR or CRLF. A line that the stream's end
// cuts is dropped, as the standard says.
func (p *sseReader) line() (string, error) {
	for {
		if i := bytes.IndexAny(p.buf, "\r\n"); i >= 0 && (p.buf[i] == '\n' || i+1 < len(p.buf)) {
			line, n := string(p.buf[:i]), 1
			if p.buf[i] == '\r' && p.buf[i+1] == '\n' {
				n = 2
			}
			p.buf = p.buf[i+n:]
			return line, nil
		}
		chunk := make([]byte, 700) // small, so that lines come in pieces
		n, err := p.r.Read(chunk)
		p.buf = append(p.buf, chunk[:n]...)
		if n == 0 && err != nil {
			return "", err
		}
	}
}

func TestTheParserReadsWhatTheStandardShows(t *testing.T) {
	p := newSSEReader(strings.NewReader(": hello\n\nid: 1\ndata: YHOO\ndata: +2\n\nevent:add\rdata:7\r\rid\n\nretry: 10\r\ndata\r\n\r\ndata: cut"))
	want := []sse{
		{comment: true, data: " hello"},
		{name: "message", data: "YHOO\n+2", lastID: "1", ownID: true, dispatched: true},
		{name: "add", data: "7", lastID: "1", dispatched: true},
		{lastID: "", ownID: true},
		{name: "message", dispatched: true, retry: 10},
	}
	for _, w := range want {
		if got, err := p.next(); err != nil || got != w {
			t.Fatalf("%+v %v, want %+v", got, err, w)
		}
	}
	if _, err := p.next(); err != io.EOF {
		t.Fatal(err)
	}
}
