package wire

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// AppendMessage writes one record as a message, the line that every reader
// over every transport gets:
//
//	{"topic","partition","offset","timestamp","key","content_type","headers":{},"value":…}
//
// key is null where the record has none. JSON is embedded without white space,
// text is a string, anything else is "value_base64"; a tombstone is
// "value":null,"tombstone":true.
func AppendMessage(dst []byte, topic string, h record.Header, e *record.Entry) []byte {
	dst = append(dst, `{"topic":`...)
	dst = AppendString(dst, topic)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendUint(dst, uint64(h.Partition.Index), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(h.Base)+int64(e.Delta), 10)
	dst = append(dst, `,"timestamp":"`...)
	dst = AppendTime(dst, h.Timestamp)
	dst = append(dst, `","key":`...)
	if e.Key == nil {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, e.Key)
	}
	dst = append(dst, `,"content_type":`...)
	dst = AppendString(dst, e.ContentType)
	dst = appendHeaders(dst, e.Headers)
	if e.Tombstone {
		dst = append(dst, `,"value":null,"tombstone":true`...)
	} else {
		dst = appendValue(dst, e.ContentType, e.Value)
	}
	return append(dst, '}')
}

func appendHeaders(dst []byte, headers []record.HeaderField) []byte {
	dst = append(dst, `,"headers":{`...)
	for i, f := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, f.Name)
		dst = append(dst, ':')
		dst = AppendString(dst, f.Value)
	}
	return append(dst, '}')
}

func appendValue(dst []byte, contentType string, value []byte) []byte {
	switch {
	case IsJSON(contentType):
		return AppendCompact(append(dst, `,"value":`...), value)
	case IsText(contentType) && utf8.Valid(value):
		return AppendString(append(dst, `,"value":`...), value)
	}
	return AppendBase64(append(dst, `,"value_base64":`...), value)
}

// messageFrameBytes is more than a message takes beside what its record holds:
// the names of its members, its numbers and its time.
const messageFrameBytes = 224

// MessageBytes is the room that AppendMessage needs at most.
func MessageBytes(topic string, e *record.Entry) int {
	n := messageFrameBytes + len(topic) + stringBytes(e.Key) + stringBytes(e.ContentType)
	for _, f := range e.Headers {
		n += 2 + stringBytes(f.Name) + stringBytes(f.Value)
	}
	switch {
	case e.Tombstone:
		return n
	case IsJSON(e.ContentType):
		return n + len(e.Value)
	case IsText(e.ContentType) && utf8.Valid(e.Value):
		return n + stringBytes(e.Value)
	}
	return n + 2 + base64.StdEncoding.EncodedLen(len(e.Value))
}

// OffsetOf is the offset of an entry of a batch.
func OffsetOf(h record.Header, e *record.Entry) ident.Offset {
	return h.Base + ident.Offset(e.Delta)
}

// IsJSON reports a content type whose values are JSON: application/json, or
// any subtype that ends in +json.
func IsJSON(contentType string) bool {
	if contentType == record.JSON {
		return true
	}
	t := mediaType(contentType)
	return t == record.JSON || strings.HasSuffix(t, "+json")
}

// IsText reports a content type whose values travel as strings.
func IsText(contentType string) bool {
	return strings.HasPrefix(mediaType(contentType), "text/")
}

func mediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}
