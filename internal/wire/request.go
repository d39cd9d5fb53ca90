package wire

import (
	"time"

	"tidewire/internal/inbox"
)

// RequestFrame is what a request says beside its record.
type RequestFrame struct {
	Timeout     time.Duration // 0: the default
	Correlation string        // "": none
}

func (q *RequestFrame) member(name string, v Value, p *Publication) (err error) {
	switch name {
	case "timeout":
		q.Timeout, err = v.Duration(inbox.MinTimeout, inbox.MaxTimeout)
	case "correlation":
		if q.Correlation, err = v.String(); err == nil && q.Correlation == "" {
			err = v.invalid("takes at least one character; leave it out to have one made")
		}
	default:
		err = p.member(name, v)
	}
	return err
}

// ReplyFrame is what a reply says beside its value.
type ReplyFrame struct {
	To     string // an inbox
	Status int    // 0: the request did not fail
}

func (r *ReplyFrame) member(name string, v Value, p *Publication) (err error) {
	switch name {
	case "to":
		r.To, err = v.String()
	case "status":
		var n int64
		n, err = v.Int(inbox.MinStatus, inbox.MaxStatus)
		r.Status = int(n)
	default:
		err = p.member(name, v)
	}
	return err
}

// AppendReply writes a reply as its requester gets it, with the id of the request; 0: none.
//
//	{"op":"reply","id","status"?,"content_type","headers":{},"value":…}
func AppendReply(dst []byte, id int64, r *inbox.Reply) []byte {
	l := Open(dst, "reply").ID(id)
	if r.Status != 0 {
		l.Int("status", int64(r.Status))
	}
	l.Str("content_type", r.ContentType)
	return append(appendValue(appendHeaders(l.b, r.Headers), r.ContentType, r.Value), '}')
}
