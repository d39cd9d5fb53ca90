package inbox

import (
	"bytes"
	"slices"

	"tidewire/internal/record"
)

// Reply is what a responder said.
type Reply struct {
	Status      int // 400 to 599: the request failed there; 0: it did not
	ContentType string
	Headers     []record.HeaderField
	Value       []byte
}

// Bounds of the status of a failure.
const (
	MinStatus = 400
	MaxStatus = 599
)

// replyBytes is about what a reply takes beside its own bytes.
const replyBytes = 128

// Bytes is the size of a reply, as its topic's limit counts it.
func (r *Reply) Bytes() int {
	n := len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// held is what it counts where it is kept.
func (r *Reply) held() int64 { return int64(r.Bytes() + len(r.ContentType) + replyBytes) }

// Clone is a reply whose value is its own.
func (r *Reply) Clone() *Reply {
	c := *r
	c.Value, c.Headers = bytes.Clone(r.Value), slices.Clone(r.Headers)
	return &c
}
