package deliver

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/parts"
	"tidewire/internal/record"
)

// Reference is what the id of a subscription made by POST /topics/subscribe
// says: any gateway serves it, none remembers it. Encoded it is
//
//	1 byte version · 1 byte what is given · uvarint length, topic ·
//	[uvarint partition] · [uvarint length, key] · [uvarint length, key prefix] ·
//	uvarint length, cursor · 4 bytes CRC-32C, all in unpadded URL-safe base64
type Reference struct {
	Topic  string
	Filter Filter // at most one key
	Cursor string
}

const (
	referenceVersion = 1

	hasPartition = 1 << iota
	hasKey
	hasPrefix
)

// maxReferenceBytes bounds an encoded reference: a name, a key and a cursor.
const maxReferenceBytes = 10 << 10

// ReferenceTo makes the reference to a start.
func ReferenceTo(s Start) Reference {
	return Reference{Topic: s.Topic.Name, Filter: s.Filter, Cursor: s.Cursor()}
}

// String encodes the reference.
func (r Reference) String() string {
	var flags byte
	if r.Filter.Partition != nil {
		flags |= hasPartition
	}
	if len(r.Filter.Keys) > 0 {
		flags |= hasKey
	}
	if r.Filter.KeyPrefix != "" {
		flags |= hasPrefix
	}
	b := []byte{referenceVersion, flags}
	b = appendText(b, r.Topic)
	if r.Filter.Partition != nil {
		b = binary.AppendUvarint(b, uint64(*r.Filter.Partition))
	}
	if len(r.Filter.Keys) > 0 {
		b = appendText(b, r.Filter.Keys[0])
	}
	if r.Filter.KeyPrefix != "" {
		b = appendText(b, r.Filter.KeyPrefix)
	}
	b = appendText(b, r.Cursor)
	b = binary.LittleEndian.AppendUint32(b, record.Checksum(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// ParseReference decodes an id; what String did not write is not found.
func ParseReference(id string) (Reference, error) {
	unknown := fault.New(fault.NotFound, "there is no such subscription; make one with POST /topics/subscribe").With("field", "subscription")
	if len(id) > maxReferenceBytes {
		return Reference{}, unknown
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(b) < 2+4 || b[0] != referenceVersion {
		return Reference{}, unknown
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if record.Checksum(body) != sum {
		return Reference{}, unknown
	}
	flags := body[1]
	rd := parts.Of(body[2:])
	var r Reference
	r.Topic = text(&rd)
	if flags&hasPartition != 0 {
		n := rd.Uvarint()
		i := ident.Index(n)
		r.Filter.Partition = &i
		if n > 1<<32-1 {
			rd.Fail()
		}
	}
	if flags&hasKey != 0 {
		r.Filter.Keys = []string{text(&rd)}
		if r.Filter.Keys[0] == "" {
			rd.Fail()
		}
	}
	if flags&hasPrefix != 0 {
		r.Filter.KeyPrefix = text(&rd)
		if r.Filter.KeyPrefix == "" {
			rd.Fail()
		}
	}
	r.Cursor = text(&rd)
	if !rd.Done() || flags&^(hasPartition|hasKey|hasPrefix) != 0 || flags&hasKey != 0 && flags&hasPrefix != 0 {
		return Reference{}, unknown
	}
	return r, nil
}

// Request asks for what the reference says.
func (r Reference) Request(t *cluster.Topic) Request {
	return Request{Topic: t, Filter: r.Filter, Cursor: r.Cursor, HasCursor: true}
}

// text takes a string off r; it must be UTF-8.
func text(r *parts.Reader) string {
	b := r.Bytes()
	if !utf8.Valid(b) {
		r.Fail()
		return ""
	}
	return string(b)
}
