package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

var errMalformed = errors.New("malformed message")

// decoder reads the fields of one message, safe on any bytes.
type decoder struct {
	rest []byte
	err  error

	field protowire.Number
	v     uint64 // of a varint
	b     []byte // of bytes, within what is read
}

// next reads the next field that may be one of ours; false at the end or at an error.
// A field of another wire type is passed over, as one that is not known.
func (d *decoder) next() bool {
	for d.err == nil && len(d.rest) > 0 {
		field, kind, n := protowire.ConsumeTag(d.rest)
		if n < 0 {
			d.err = errMalformed
			return false
		}
		d.rest = d.rest[n:]
		d.field, d.v, d.b = field, 0, nil
		switch kind {
		case protowire.VarintType:
			d.v, n = protowire.ConsumeVarint(d.rest)
		case protowire.BytesType:
			d.b, n = protowire.ConsumeBytes(d.rest)
		default:
			n = protowire.ConsumeFieldValue(field, kind, d.rest)
			field = 0
		}
		if n < 0 {
			d.err = errMalformed
			return false
		}
		d.rest = d.rest[n:]
		if field != 0 {
			return true
		}
	}
	return false
}

// inner hands on the error of a message within the message.
func (d *decoder) inner(err error) {
	if err != nil {
		d.err = err
	}
}

func (d *decoder) partition() (p ident.Partition) {
	in := decoder{rest: d.b}
	for in.next() {
		switch in.field {
		case 1:
			if len(in.b) != len(p.Topic) {
				in.err = fmt.Errorf("%w: a topic id of %d bytes", errMalformed, len(in.b))
			}
			copy(p.Topic[:], in.b)
		case 2:
			p.Index = ident.Index(in.v)
		}
	}
	if in.err != nil {
		d.err = in.err
	}
	return p
}

func (d *decoder) problem() error {
	p := &tidewirepb.Problem{}
	if err := proto.Unmarshal(d.b, p); err != nil {
		d.err = errMalformed
		return nil
	}
	return faultOf(p)
}

func (d *decoder) offset() ident.Offset { return ident.Offset(d.v) }
func (d *decoder) epoch() ident.Epoch   { return ident.Epoch(d.v) }
