package wire

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Bounds of a record's parts, from the public contract.
const (
	MaxKeyBytes         = 1 << 10
	MaxHeaders          = 64
	MaxHeaderBytes      = 16 << 10
	MaxContentTypeBytes = 255
	maxPartition        = 1<<32 - 1
)

// OctetStream is the content type of bytes that nobody named.
const OctetStream = "application/octet-stream"

// messageFields are the names of a record in a line of ndjson.
var messageFields = []string{"key", "value", "value_base64", "headers", "content_type", "partition", "tombstone"}

// Publication is a record as a client wrote it in JSON, with where it goes.
type Publication struct {
	Topic     string // frames only
	Partition *ident.Index
	Acks      string           // frames only; empty: all
	Producer  ident.ProducerID // frames only; zero: none
	Sequence  int64
	Record    record.Record

	value, base64  []byte // raw JSON
	contentType    string
	hasTombstone   bool
	hasSequence    bool
	hasProducer    bool
	hasContentType bool
}

// ParseLine reads one line of ndjson. The record's slices may point into line.
// On an error the parts read so far are filled in.
func ParseLine(line []byte) (Publication, error) {
	var p Publication
	err := Object(line, messageFields, p.member)
	if err == nil {
		err = p.finish()
	}
	return p, err
}

func (p *Publication) member(name string, v Value) (err error) {
	switch name {
	case "topic":
		p.Topic, err = v.String()
	case "key":
		if v.IsNull() {
			return nil
		}
		var key []byte
		if key, err = v.text(); err == nil {
			p.Record.Key, err = checkKey(key)
		}
	case "value":
		p.value = v.Raw
	case "value_base64":
		p.base64 = v.Raw
	case "content_type":
		p.hasContentType = true
		p.contentType, err = v.String()
	case "tombstone":
		p.hasTombstone, err = v.Bool()
	case "headers":
		err = v.Each(func(name string, v Value) error {
			value, err := v.String()
			if err == nil {
				p.Record.Headers, err = AddHeader(p.Record.Headers, name, value)
			}
			return err
		})
	case "partition":
		var index *ident.Index
		if index, err = v.Partition(); err == nil {
			p.Partition = index
		}
	case "acks":
		p.Acks, err = v.Choice("all", "leader", "none")
	case "producer":
		p.hasProducer = true
		var s string
		if s, err = v.String(); err == nil {
			if p.Producer, err = ident.ParseProducerID(s); err != nil {
				err = fault.New(fault.Invalid, "field %q: %w", name, err).With("field", name)
			}
		}
	case "sequence":
		if p.Sequence, err = v.Int(0, ident.MaxSequence); err == nil {
			p.hasSequence = true
		}
	}
	return err
}

// Partition takes the number of a partition.
func (v Value) Partition() (*ident.Index, error) {
	n, err := v.Int(0, maxPartition)
	i := ident.Index(n)
	return &i, err
}

// finish turns what was read into the record's value.
func (p *Publication) finish() error {
	r := &p.Record
	if p.hasTombstone {
		if p.base64 != nil || (p.value != nil && string(p.value) != "null") {
			return invalidField("tombstone", "takes no value: send \"value\":null or leave it out")
		}
		return finishTombstone(r)
	}
	if p.hasContentType {
		if err := CheckContentType(p.contentType); err != nil {
			return err
		}
	}
	switch {
	case p.value != nil && p.base64 != nil:
		return invalidField("value_base64", "and \"value\" exclude one another")
	case p.base64 != nil:
		return p.finishBase64()
	case p.value == nil:
		return invalidField("value", "or \"value_base64\" is needed")
	}
	r.ContentType = p.contentType
	if !p.hasContentType {
		r.ContentType = record.JSON
	}
	switch {
	case IsJSON(r.ContentType):
		r.Value = p.value
	case IsText(r.ContentType):
		if p.value[0] != '"' {
			return invalidField("value", "must be a string where content_type is %q", r.ContentType)
		}
		r.Value, _ = (Value{Raw: p.value}).text()
	default:
		return invalidField("value", "takes JSON or text; send \"value_base64\" where content_type is %q", r.ContentType)
	}
	return nil
}

func (p *Publication) finishBase64() error {
	r := &p.Record
	if p.base64[0] != '"' {
		return invalidField("value_base64", "takes a string")
	}
	text, _ := (Value{Raw: p.base64}).text()
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return invalidField("value_base64", "takes standard base64: %v", err)
	}
	r.Value, r.ContentType = b, p.contentType
	if !p.hasContentType {
		r.ContentType = OctetStream
	}
	return CheckValue(r)
}

func finishTombstone(r *record.Record) error {
	if r.Key == nil {
		return invalidField("key", "is needed for a tombstone")
	}
	r.Tombstone, r.Value, r.ContentType = true, nil, ""
	return nil
}

// Tombstone makes r the deletion of its key; it needs one.
func Tombstone(r *record.Record) error { return finishTombstone(r) }

// CheckValue says why a record's bytes are not of its content type.
func CheckValue(r *record.Record) error {
	if !IsJSON(r.ContentType) {
		return nil
	}
	if err := CheckJSON(r.Value); err != nil {
		return fault.New(fault.Invalid, "the value is not JSON, as its content type %q says: %w", r.ContentType, err).With("field", "value")
	}
	return nil
}

// GuessContentType names bytes that came without a type: JSON if they parse as
// JSON, else text if they are UTF-8, else octets.
func GuessContentType(b []byte) string {
	switch {
	case CheckJSON(b) == nil:
		return record.JSON
	case utf8.Valid(b):
		return "text/plain"
	}
	return OctetStream
}

// CheckContentType says why s cannot be a record's content type.
func CheckContentType(s string) error {
	ok := s != "" && len(s) <= MaxContentTypeBytes && strings.Contains(s, "/")
	for i := range len(s) {
		ok = ok && s[i] >= 0x20 && s[i] < 0x7f
	}
	if !ok {
		return invalidField("content_type", "takes a media type such as \"application/json\", at most %d bytes", MaxContentTypeBytes)
	}
	return nil
}

// Key checks a key that a client gave: 1 byte to 1 KiB of UTF-8.
func Key(key string) ([]byte, error) { return checkKey([]byte(key)) }

func checkKey(key []byte) ([]byte, error) {
	if len(key) == 0 || len(key) > MaxKeyBytes || !utf8.Valid(key) {
		return nil, invalidField("key", "takes 1 to %d bytes of UTF-8; leave it out for a record without a key", MaxKeyBytes)
	}
	return key, nil
}

// systemPrefix begins the headers that the cluster sets itself.
const systemPrefix = "tidewire-"

// AddHeader checks one header that a client gave and appends it, its name in
// lower case.
func AddHeader(headers []record.HeaderField, name, value string) ([]record.HeaderField, error) {
	lower := strings.ToLower(name)
	switch {
	case !isToken(lower):
		return nil, invalidField("headers", "takes names of letters, digits and - _ . ! # $ %% & ' * + ^ ` | ~, not %q", name)
	case strings.HasPrefix(lower, systemPrefix):
		return nil, fault.New(fault.ReservedName, "header %q: names that begin with Tidewire- are the cluster's own", name).With("field", "headers."+name)
	case !utf8.ValidString(value):
		return nil, invalidField("headers", "takes values in UTF-8; %q is not", name)
	case len(headers) == MaxHeaders:
		return nil, invalidField("headers", "takes at most %d", MaxHeaders)
	}
	bytes := len(lower) + len(value)
	for _, h := range headers {
		if h.Name == lower {
			return nil, invalidField("headers", "names %q twice (names are case-insensitive)", lower)
		}
		bytes += len(h.Name) + len(h.Value)
	}
	if bytes > MaxHeaderBytes {
		return nil, invalidField("headers", "takes at most %d bytes together", MaxHeaderBytes)
	}
	return append(headers, record.HeaderField{Name: lower, Value: value}), nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func invalidField(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "field %q %s", field, fmt.Sprintf(format, args...)).With("field", field)
}
