package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a JSON value.
const maxDepth = 512

var errEmpty = fmt.Errorf("%w: it is empty", errJSON)

var errJSON = errors.New("not valid JSON")

func syntax(at int, what string) error {
	return fmt.Errorf("%w: %s at byte %d", errJSON, what, at)
}

// CheckJSON says why b is not one JSON value in valid UTF-8.
func CheckJSON(b []byte) error {
	i := skipSpace(b, 0)
	if i == len(b) {
		return errEmpty
	}
	end, err := skipValue(b, i, 0)
	if err != nil {
		return err
	}
	if i = skipSpace(b, end); i != len(b) {
		return syntax(i, "more after the value")
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue checks the value that begins at i and returns where it ends.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, syntax(i, "a value is missing")
	}
	if depth > maxDepth {
		return i, syntax(i, fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipObject(b, i, depth, nil)
	case c == '[':
		return skipArray(b, i, depth)
	case c == '-' || (c >= '0' && c <= '9'):
		return skipNumber(b, i)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return i, syntax(i, fmt.Sprintf("%q cannot begin a value", b[i]))
}

func skipWord(b []byte, i int, word string) (int, error) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, syntax(i, "a broken word")
	}
	return i + len(word), nil
}

func skipNumber(b []byte, i int) (int, error) {
	start := i
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return i, syntax(start, "a broken number")
	}
	if i < len(b) && b[i] == '.' {
		if j := skipDigits(b, i+1); j > i+1 {
			i = j
		} else {
			return i, syntax(start, "a broken number")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := skipDigits(b, i)
		if j == i {
			return i, syntax(start, "a broken number")
		}
		i = j
	}
	return i, nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

func skipString(b []byte, i int) (int, error) {
	start := i
	for i = plain(b, i+1); i < len(b); i = plain(b, i) {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			n, err := escapeBytes(b, i)
			if err != nil {
				return i, err
			}
			i += n
		case c < 0x20:
			return i, syntax(i, "a control character in a string")
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					return i, syntax(i, "invalid UTF-8")
				}
				i += n
			}
		}
	}
	return i, syntax(start, "a string without an end")
}

// plain is where the run of bytes ends, from i on, that stand for themselves in
// a string: at a quote, a backslash, a control character, a byte beyond ASCII,
// or the end. It looks at eight bytes at a time.
func plain(b []byte, i int) int {
	const (
		ones    = 0x0101010101010101
		spaces  = 0x20 * ones
		quotes  = '"' * ones
		slashes = '\\' * ones
		tops    = 0x80 * ones
	)
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// The top bit of a byte is set where the byte has it, is below a space, or
		// is 0 after the xor. A subtraction borrows from the byte above only
		// where such a byte was found below it, and the lowest one counts.
		if found := (x | (x - spaces) | ((x ^ quotes) - ones) | ((x ^ slashes) - ones)) & tops; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escapeBytes is the length of the escape at i.
func escapeBytes(b []byte, i int) (int, error) {
	if i+1 >= len(b) {
		return 0, syntax(i, "a string without an end")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if i+6 > len(b) {
			return 0, syntax(i, "a broken escape")
		}
		for _, c := range b[i+2 : i+6] {
			if !isHex(c) {
				return 0, syntax(i, "a broken escape")
			}
		}
		return 6, nil
	}
	return 0, syntax(i, "a broken escape")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipArray(b []byte, i, depth int) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		end, err := skipValue(b, i, depth+1)
		if err != nil {
			return end, err
		}
		i = skipSpace(b, end)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == ']':
			return i + 1, nil
		default:
			return i, syntax(i, "a comma or ] is missing")
		}
	}
}

// skipObject checks the object at i; member, if any, is called for each of its
// members with the quoted name and the raw value.
func skipObject(b []byte, i, depth int, member func(name, raw []byte) error) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return i, syntax(i, "a name in quotes is missing")
		}
		nameEnd, err := skipString(b, i)
		if err != nil {
			return nameEnd, err
		}
		name := b[i:nameEnd]
		i = skipSpace(b, nameEnd)
		if i >= len(b) || b[i] != ':' {
			return i, syntax(i, "a colon is missing")
		}
		i = skipSpace(b, i+1)
		end, err := skipValue(b, i, depth+1)
		if err != nil {
			return end, err
		}
		if member != nil {
			if err := member(name, b[i:end]); err != nil {
				return end, err
			}
		}
		i = skipSpace(b, end)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, syntax(i, "a comma or } is missing")
		}
	}
}
