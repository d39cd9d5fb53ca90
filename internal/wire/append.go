package wire

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"
)

// Line builds one line of JSON: an object, member by member.
//
//	line := wire.Open(nil, "published").Str("topic", topic).Int("offset", 7).Close()
type Line struct {
	b     []byte
	count int
}

// Open begins an object after dst with the member "op".
func Open(dst []byte, op string) *Line { return Begin(dst).Str("op", op) }

// Begin begins an object after dst.
func Begin(dst []byte) *Line { return &Line{b: append(dst, '{')} }

func (l *Line) name(name string) {
	if l.count > 0 {
		l.b = append(l.b, ',')
	}
	l.count++
	l.b = AppendString(l.b, name)
	l.b = append(l.b, ':')
}

// ID adds the member "id" unless it is 0.
func (l *Line) ID(id int64) *Line {
	if id == 0 {
		return l
	}
	return l.Int("id", id)
}

// Str adds a string.
func (l *Line) Str(name, v string) *Line {
	l.name(name)
	l.b = AppendString(l.b, v)
	return l
}

// Int adds a whole number.
func (l *Line) Int(name string, v int64) *Line {
	l.name(name)
	l.b = strconv.AppendInt(l.b, v, 10)
	return l
}

// Bool adds true or false.
func (l *Line) Bool(name string, v bool) *Line {
	l.name(name)
	l.b = strconv.AppendBool(l.b, v)
	return l
}

// Raw adds a value that is JSON already.
func (l *Line) Raw(name string, v []byte) *Line {
	l.name(name)
	l.b = append(l.b, v...)
	return l
}

// Time adds a time given in milliseconds since 1970.
func (l *Line) Time(name string, ms int64) *Line {
	l.name(name)
	l.b = append(l.b, '"')
	l.b = AppendTime(l.b, ms)
	l.b = append(l.b, '"')
	return l
}

// Close ends the object and returns the bytes.
func (l *Line) Close() []byte { return append(l.b, '}') }

// AppendTime writes RFC 3339 in UTC with milliseconds.
func AppendTime(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	hour, minute, second := t.Clock()
	dst = appendPair(appendPair(dst, year/100), year%100)
	dst = appendPair(append(dst, '-'), int(month))
	dst = appendPair(append(dst, '-'), day)
	dst = appendPair(append(dst, 'T'), hour)
	dst = appendPair(append(dst, ':'), minute)
	dst = appendPair(append(dst, ':'), second)
	milli := t.Nanosecond() / 1e6
	return append(appendPair(append(dst, '.'), milli/10), byte('0'+milli%10), 'Z')
}

// appendPair writes two digits.
func appendPair(dst []byte, n int) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }

const hexDigits = "0123456789abcdef"

// AppendString writes a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...)
			i++
			start = i
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// stringBytes is the room that AppendString needs at most.
func stringBytes[T string | []byte](s T) int {
	n := 2 + len(s)
	foreign := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			n++
		case c < 0x20:
			n += 5
		case c >= utf8.RuneSelf:
			foreign++
		}
	}
	if foreign > 0 && !utf8.ValidString(string(s)) {
		n += 2 * foreign // U+FFFD for each byte of it
	}
	return n
}

// AppendCompact writes valid JSON without the white space between its parts.
func AppendCompact(dst, json []byte) []byte {
	start := 0
	for i := 0; i < len(json); {
		switch json[i] {
		case '"':
			i, _ = skipString(json, i) // it is valid
		case ' ', '\n', '\t', '\r':
			dst = append(dst, json[start:i]...)
			i++
			start = i
		default:
			i++
		}
	}
	return append(dst, json[start:]...)
}

// AppendBase64 writes a JSON string of standard base64.
func AppendBase64(dst, v []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, '"')
}
