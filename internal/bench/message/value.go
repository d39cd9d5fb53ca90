package message

import (
	"errors"
	"fmt"
	"strings"
)

// A value is JSON without white space, so that it comes back byte for byte:
//
//	{"n":"0000000000000042","x":"Zm9v…"}
//	      ^ valueDigits           ^ filler up to the size
const (
	valueHead   = `{"n":"`
	valueMiddle = `","x":"`
	valueTail   = `"}`
	valueDigits = 16

	// MinBytes is the size of the smallest value.
	MinBytes = len(valueHead) + valueDigits + len(valueMiddle) + len(valueTail)
)

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// Value is a value of so many bytes whose number is blank, for a stencil. The
// filler is the same every time and not easily compressed.
func Value(bytes int) string {
	var b strings.Builder
	b.WriteString(valueHead + Blank(valueDigits) + valueMiddle)
	state := uint64(88172645463325252)
	for b.Len() < bytes-len(valueTail) {
		state ^= state << 13 // xorshift64
		state ^= state >> 7
		state ^= state << 17
		b.WriteByte(letters[state&63])
	}
	b.WriteString(valueTail)
	return b.String()
}

var errForeign = errors.New("a message arrived that this load did not publish")

// Number is the number of the value of so many bytes that a delivered line
// ends in, the line being {…,"value":<value>}.
func Number(line []byte, bytes int) (int64, error) {
	start := len(line) - 1 - bytes
	if start < 0 || string(line[start:start+len(valueHead)]) != valueHead {
		return 0, fmt.Errorf("%w: %.200s", errForeign, line)
	}
	n, ok := Digits(line[start+len(valueHead):], valueDigits)
	if !ok {
		return 0, fmt.Errorf("%w: %.200s", errForeign, line)
	}
	return n, nil
}

// NumberOf is the number of a value that stands alone.
func NumberOf(value []byte) (int64, error) {
	if len(value) >= MinBytes && string(value[:len(valueHead)]) == valueHead {
		if n, ok := Digits(value[len(valueHead):], valueDigits); ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: %.200s", errForeign, value)
}

// Digits reads a number of a fixed width.
func Digits(b []byte, width int) (n int64, ok bool) {
	if len(b) < width {
		return 0, false
	}
	for _, c := range b[:width] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
