package wire

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"tidewire/internal/fault"
)

// Object reads one JSON object strictly: every name must be one of known and
// come once; member gets each value and returns its complaint. A syntax error
// wins over what member says, so nothing is acted on before the whole object
// is known to be one.
func Object(b []byte, known []string, member func(name string, v Value) error) error {
	i := skipSpace(b, 0)
	if i == len(b) {
		return fault.New(fault.Invalid, "the body is empty; a JSON object is expected")
	}
	if b[i] != '{' {
		if err := CheckJSON(b); err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
		return fault.New(fault.Invalid, "a JSON object is expected")
	}
	var seen [64]bool
	var complaint error
	end, err := skipObject(b, i, 0, func(quoted, raw []byte) error {
		if complaint == nil {
			complaint = take(quoted, raw, known, &seen, member)
		}
		return nil
	})
	if err == nil {
		if i = skipSpace(b, end); i != len(b) {
			err = syntax(i, "more after the object")
		}
	}
	if err != nil {
		return fault.New(fault.Invalid, "%w", err)
	}
	return complaint
}

// take gives one member of an object of known names to member, if that is all
// it may be.
func take(quoted, raw []byte, known []string, seen *[64]bool, member func(name string, v Value) error) error {
	k := among(known, quoted)
	switch {
	case k < 0:
		return fault.Unknown("field", unquote(quoted), known)
	case seen[k]:
		return fault.New(fault.Invalid, "field %q comes twice", known[k]).With("field", known[k])
	}
	seen[k] = true
	return member(known[k], Value{Name: known[k], Raw: raw})
}

// among finds a name as it stands in JSON; -1: it is none of them.
func among(known []string, quoted []byte) int {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		return slices.Index(known, unquote(quoted))
	}
	for k, name := range known {
		if string(quoted[1:len(quoted)-1]) == name {
			return k
		}
	}
	return -1
}

// Value is one member of an object: its name, for complaints, and its raw
// JSON, which is known to be valid.
type Value struct {
	Name string
	Raw  []byte
}

func (v Value) invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "field %q "+format, append([]any{v.Name}, args...)...).With("field", v.Name)
}

// IsNull reports the JSON value null.
func (v Value) IsNull() bool { return string(v.Raw) == "null" }

// String takes a JSON string.
func (v Value) String() (string, error) {
	if v.Raw[0] != '"' {
		return "", v.invalid("takes a string")
	}
	return unquote(v.Raw), nil
}

// text takes a JSON string as bytes, which point into it where they can.
func (v Value) text() ([]byte, error) {
	if v.Raw[0] == '"' && bytes.IndexByte(v.Raw, '\\') < 0 {
		return v.Raw[1 : len(v.Raw)-1], nil
	}
	s, err := v.String()
	return []byte(s), err
}

// Choice takes one of the given strings.
func (v Value) Choice(of ...string) (string, error) {
	s, err := v.String()
	if err != nil || !slices.Contains(of, s) {
		return "", v.invalid("takes one of %s", strings.Join(of, ", "))
	}
	return s, nil
}

// Bool takes true or false.
func (v Value) Bool() (bool, error) {
	switch string(v.Raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, v.invalid("takes true or false")
}

// Int takes a whole number from lo to hi.
func (v Value) Int(lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(string(v.Raw), 10, 64)
	if err != nil || n < lo || n > hi || v.Raw[0] == '+' {
		return 0, v.invalid("takes a whole number from %d to %d", lo, hi)
	}
	return n, nil
}

// Duration takes a string such as "250ms" or "168h", from lo to hi.
func (v Value) Duration(lo, hi time.Duration) (time.Duration, error) {
	s, err := v.String()
	if err == nil {
		var d time.Duration
		if d, err = time.ParseDuration(s); err == nil && d >= lo && d <= hi {
			return d, nil
		}
	}
	return 0, v.invalid(`takes a duration such as "250ms" or "168h", from %s to %s`, ShortDuration(lo), ShortDuration(hi))
}

// ShortDuration is Duration.String without the parts that are 0: 168h, not
// 168h0m0s.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Strings takes a list of at most n strings.
func (v Value) Strings(n int) ([]string, error) {
	if v.Raw[0] != '[' {
		return nil, v.invalid("takes a list of strings")
	}
	var out []string
	for i := skipSpace(v.Raw, 1); v.Raw[i] != ']'; {
		end, err := skipValue(v.Raw, i, 0)
		if err != nil || v.Raw[i] != '"' {
			return nil, v.invalid("takes a list of strings")
		}
		if len(out) == n {
			return nil, v.invalid("takes at most %d strings", n)
		}
		out = append(out, unquote(v.Raw[i:end]))
		if i = skipSpace(v.Raw, end); v.Raw[i] == ',' {
			i = skipSpace(v.Raw, i+1)
		}
	}
	return out, nil
}

// Each walks the members of an object whose names are the client's own. A name
// that comes twice is an error.
func (v Value) Each(member func(name string, v Value) error) error {
	if v.Raw[0] != '{' {
		return v.invalid("takes an object")
	}
	seen := map[string]bool{}
	_, err := skipObject(v.Raw, 0, 0, func(quoted, raw []byte) error {
		name := unquote(quoted)
		if seen[name] {
			return v.invalid("names %q twice", name)
		}
		seen[name] = true
		return member(name, Value{Name: v.Name + "." + name, Raw: raw})
	})
	return err
}

// Object reads the value as an object of known names, as the function Object does.
func (v Value) Object(known []string, member func(name string, v Value) error) error {
	if v.Raw[0] != '{' {
		return v.invalid("takes an object")
	}
	err := Object(v.Raw, known, func(name string, m Value) error {
		m.Name = v.Name + "." + name
		return member(name, m)
	})
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.UnknownField {
		return fault.New(fault.UnknownField, "in %q: %w", v.Name, f.Err).With("field", v.Name+"."+f.Fields["field"].(string))
	}
	return err
}

// unquote decodes a JSON string that is known to be valid. A lone surrogate
// becomes U+FFFD.
func unquote(q []byte) string {
	q = q[1 : len(q)-1]
	if bytes.IndexByte(q, '\\') < 0 {
		return string(q)
	}
	out := make([]byte, 0, len(q))
	for i := 0; i < len(q); {
		if q[i] != '\\' {
			out = append(out, q[i])
			i++
			continue
		}
		switch c := q[i+1]; c {
		case 'u':
			r := rune4(q[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if i+6 <= len(q) && q[i] == '\\' && q[i+1] == 'u' {
					pair = utf16.DecodeRune(r, rune4(q[i+2:]))
				}
				if pair != utf8.RuneError {
					i += 6
				}
				r = pair
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, escapes(c))
			i += 2
		}
	}
	return string(out)
}

func escapes(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // quote, backslash, slash
}

func rune4(h []byte) rune {
	n, _ := strconv.ParseUint(string(h[:4]), 16, 32)
	return rune(n)
}
