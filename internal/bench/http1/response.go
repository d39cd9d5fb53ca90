package http1

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxHead bounds the head of an answer.
const maxHead = 64 << 10

// Head is the first part of an answer.
type Head struct {
	Status  int
	Length  int // of the body; -1: not told
	Chunked bool
	Size    int // bytes of the head
	// RetryAfter is the header in seconds; 0: none.
	RetryAfter time.Duration
}

var headEnd = []byte("\r\n\r\n")

// ParseHead finds the head of an answer at the start of b.
func ParseHead(b []byte) (h Head, whole bool, err error) {
	end := bytes.Index(b, headEnd)
	if end < 0 {
		if len(b) > maxHead {
			return h, false, fmt.Errorf("the head of an answer is longer than %d bytes", maxHead)
		}
		return h, false, nil
	}
	h = Head{Length: -1, Size: end + len(headEnd)}
	line, rest, _ := bytes.Cut(b[:end], []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return h, false, fmt.Errorf("this is no answer of HTTP/1.1: %.100q", line)
	}
	if h.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, false, fmt.Errorf("this is no answer of HTTP/1.1: %.100q", line)
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch v := strings.TrimSpace(string(value)); {
		case equalFold(name, "Content-Length"):
			if h.Length, err = strconv.Atoi(v); err != nil || h.Length < 0 {
				return h, false, fmt.Errorf("the answer has a Content-Length of %q", v)
			}
		case equalFold(name, "Retry-After"):
			if seconds, err := strconv.Atoi(v); err == nil && seconds > 0 {
				h.RetryAfter = time.Duration(seconds) * time.Second
			}
		case equalFold(name, "Transfer-Encoding"):
			h.Chunked = strings.EqualFold(v, "chunked")
		}
	}
	return h, true, nil
}

func equalFold(name []byte, want string) bool {
	return len(name) == len(want) && strings.EqualFold(string(name), want)
}

// Response is a whole answer.
type Response struct {
	Status int
	Body   []byte // points into what was parsed, or into the scratch
	Size   int    // bytes of all of it
}

// ParseResponse finds a whole answer at the start of b. The body of a chunked
// one is put together in scratch, which it returns, grown.
func ParseResponse(b, scratch []byte) (r Response, _ []byte, whole bool, err error) {
	h, whole, err := ParseHead(b)
	if !whole || err != nil {
		return r, scratch, false, err
	}
	rest := b[h.Size:]
	switch {
	case h.Chunked:
		var c Chunks
		body, at := scratch[:0], 0
		for !c.Done() {
			data, used, err := c.Next(rest[at:])
			if err != nil {
				return r, scratch, false, err
			}
			if used == 0 {
				return r, body, false, nil
			}
			body = append(body, data...)
			at += used
		}
		return Response{h.Status, body, h.Size + at}, body, true, nil
	case h.Length >= 0:
		if len(rest) < h.Length {
			return r, scratch, false, nil
		}
		return Response{h.Status, rest[:h.Length], h.Size + h.Length}, scratch, true, nil
	}
	return r, scratch, false, errors.New("the server ends its connections after each answer: nothing to measure here")
}
