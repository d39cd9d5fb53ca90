package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"tidewire/cmd/tidewire/internal/bench/http1"
	"tidewire/cmd/tidewire/internal/bench/message"
	"tidewire/cmd/tidewire/internal/bench/sock"
)

// Records says what is published.
type Records struct {
	Topic string
	Bytes int    // of a value
	Keys  int    // records take turns among so many; 0: no key
	Acks  string // all, leader or none
	Batch int    // lines of a body of ndjson
}

// KeyName is the key of a number.
func KeyName(i int) string { return fmt.Sprintf("k%0*d", keyDigits, i) }

const (
	keyDigits  = 7
	slotDigits = 12
	// slotHead makes the number of a slot one without leading zeros.
	slotHead = "1"
)

// numbers puts the blanks of one record together: its key, where it has one,
// and its number.
func (r Records) numbers(dst []int64, n int64) []int64 {
	if r.Keys > 0 {
		dst = append(dst, n%int64(r.Keys))
	}
	return append(dst, n)
}

// keyMember is the key as a member of JSON.
func (r Records) keyMember() string {
	if r.Keys == 0 {
		return ""
	}
	return `"key":"k` + message.Blank(keyDigits) + `",`
}

// frames publishes over WebSocket, a frame a record.
type frames struct {
	r       Records
	key     [4]byte
	stencil message.Stencil
	scratch []int64
	conn    *sock.Conn
	l       *lane
	line    func([]byte) error
}

func newFrames(r Records) *frames {
	f := &frames{r: r, key: maskKey()}
	acks := ""
	if r.Acks != "all" {
		acks = `,"acks":"` + r.Acks + `"`
	}
	f.stencil = message.NewFrame(`{"op":"publish","id":`+slotHead+message.Blank(slotDigits)+`,"topic":`+strconv.Quote(r.Topic)+acks+`,`+
		r.keyMember()+`"value":`+message.Value(r.Bytes)+`}`, f.key)
	f.line = f.text
	return f
}

func (f *frames) open(t Target) (c *sock.Conn, err error) {
	f.conn, err = dialWebSocket(t)
	return f.conn, err
}

func (f *frames) append(dst []byte, slot int, n int64) []byte {
	f.scratch = f.r.numbers(append(f.scratch[:0], int64(slot)), n)
	return f.stencil.Append(dst, f.scratch...)
}

func (f *frames) read(b []byte, l *lane) (int, error) {
	f.l = l
	return texts(b, f.conn, f.key, f.line)
}

var (
	published = []byte(`{"op":"published","id":` + slotHead)
	echoed    = []byte(`{"op":"publish","id":` + slotHead) // by the floor
	failed    = []byte(`{"op":"error"`)
	closing   = []byte(`{"op":"closing"`)
)

// text reads the answers of a frame, a line each.
func (f *frames) text(payload []byte) error {
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte{'\n'})
		payload = rest
		number, ok := bytes.CutPrefix(line, published)
		if !ok {
			number, ok = bytes.CutPrefix(line, echoed)
		}
		var err error
		switch {
		case ok:
			slot, ok := message.Digits(number, slotDigits)
			if !ok {
				return fmt.Errorf("an answer of the server is not as expected: %.200s", line)
			}
			err = f.l.answered(int(slot), 1, 0, nil)
		case bytes.HasPrefix(line, failed):
			err = f.refused(line)
		case bytes.HasPrefix(line, closing):
			_, err = readNotice(line)
			if err == nil {
				err = fmt.Errorf("the server is closing: %s", line)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *frames) refused(line []byte) error {
	n, err := readNotice(line)
	if err != nil {
		return err
	}
	if n.ID == 0 {
		return n
	}
	slot, _ := message.Digits([]byte(strconv.FormatInt(n.ID, 10)[len(slotHead):]), slotDigits)
	return f.l.answered(int(slot), 0, 1, n)
}

// posts publishes over HTTP/1.1, one request in flight: a record, or lines.
type posts struct {
	r       Records
	lines   bool
	stencil message.Stencil
	scratch []int64
	body    []byte
}

func newPosts(r Records, lines bool, host string) *posts {
	p := &posts{r: r, lines: lines}
	contentType, query, body := "application/json", "acks="+r.Acks, message.Value(r.Bytes)
	if lines {
		contentType = "application/x-ndjson"
		body = strings.Repeat("{"+r.keyMember()+`"value":`+message.Value(r.Bytes)+"}\n", r.Batch)
	} else if r.Keys > 0 {
		query += "&key=k" + message.Blank(keyDigits)
	}
	p.stencil = message.NewStencil("POST /topics/" + url.PathEscape(r.Topic) + "?" + query + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: " + contentType +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	return p
}

func (p *posts) open(t Target) (*sock.Conn, error) { return sock.Dial(t.Addr) }

// records is how many one request has.
func (p *posts) records() int {
	if p.lines {
		return p.r.Batch
	}
	return 1
}

func (p *posts) append(dst []byte, _ int, n int64) []byte {
	p.scratch = p.scratch[:0]
	for i := range p.records() {
		p.scratch = p.r.numbers(p.scratch, n*int64(p.records())+int64(i))
	}
	return p.stencil.Append(dst, p.scratch...)
}

var offsetMember = []byte(`"offset":`)

func (p *posts) read(b []byte, l *lane) (used int, err error) {
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
			why = fmt.Errorf("the server answered %d: %.500s", r.Status, bytes.TrimSpace(r.Body))
		}
		if err := l.answered(0, kept, refused, why); err != nil {
			return used, err
		}
	}
	return used, nil
}
