package load

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/sock"
)

// Refusal is an answer of the server that is not what was asked for: a problem over
// HTTP, or an error frame.
type Refusal struct {
	Status        int // 0: a frame
	Code          string
	Title, Detail string

	after time.Duration // the server's advice when to ask again; 0: none
}

// Error is what other commands say of a problem.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s (%s)", cmp.Or(r.Detail, r.Title), r.Code)
}

// maxRefusal bounds the body of a refusal that is waited for.
const maxRefusal = 64 << 10

// newRefusal reads an answer. Where it has several lines, an answer each, the first
// that is a refusal counts.
func newRefusal(status int, after time.Duration, body []byte) *Refusal {
	r := &Refusal{Status: status, after: after}
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		var p struct{ Code, Title, Detail string }
		if json.Unmarshal(line, &p) == nil && p.Code != "" {
			r.Code, r.Title, r.Detail = p.Code, p.Title, p.Detail
			break
		}
	}
	if r.Code == "" {
		r.Code, r.Title = fmt.Sprintf("http-%d", status), cmp.Or(http.StatusText(status), "no status of HTTP")
		if text := bytes.TrimSpace(body); len(text) > 0 {
			r.Detail = fmt.Sprintf("%s: %.300s", r.Title, text)
		}
	}
	return r
}

// fetchRefusal waits for the body of an answer whose head has come.
func fetchRefusal(c *sock.Conn, h http1.Head, text []byte) error {
	deadline := time.Now().Add(handshakeTimeout)
	for h.Length > 0 && h.Length <= maxRefusal && len(text) < h.Size+h.Length {
		more, err := c.Fetch(deadline)
		if err != nil {
			break // what there is of it says enough
		}
		text = more
	}
	return newRefusal(h.Status, h.RetryAfter, text[h.Size:])
}
