package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"tidewire/cmd/tidewire/internal/producer"
	"tidewire/internal/record"
	"tidewire/internal/wire"
)

// headersJSON writes name=value pairs as a JSON object.
func headersJSON(pairs []string) ([]byte, error) {
	fields, err := headerFields(pairs)
	if len(fields) == 0 {
		return nil, err
	}
	object := wire.Begin(nil)
	for _, f := range fields {
		object.Str(f.Name, f.Value)
	}
	return object.Close(), err
}

// headerFields reads name=value pairs.
func headerFields(pairs []string) (fields []record.HeaderField, err error) {
	var faults []error
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			faults = append(faults, fmt.Errorf("--header: %q is no name=value", p))
			continue
		}
		more, err := wire.AddHeader(fields, name, value)
		if err != nil {
			faults = append(faults, fmt.Errorf("--header: %w", err))
			continue
		}
		fields = more
	}
	return fields, errors.Join(faults...)
}

// encode makes a record of a line. After an error the record still says which
// line it was.
func (e encoder) encode(l line) (producer.Record, error) {
	r := producer.Record{Source: l.source, Line: l.number, Key: e.key}
	if l.tooLong {
		return r, fmt.Errorf("the line is longer than %d bytes", maxLineBytes)
	}
	if e.keyField != "" {
		key, err := keyOf(l.text, e.keyField)
		if err != nil {
			return r, err
		}
		r.Key = key
	}
	contentType := e.contentType
	if contentType == "" {
		contentType = wire.GuessContentType(l.text)
	}
	out := wire.Begin(make([]byte, 0, len(l.text)+len(e.headers)+len(r.Key)+96))
	if r.Key != "" {
		out.Str("key", r.Key)
	}
	if e.headers != nil {
		out.Raw("headers", e.headers)
	}
	if contentType != record.JSON {
		out.Str("content_type", contentType)
	}
	if wire.IsJSON(contentType) {
		// Checked here: one bad line must not break the framing of the others.
		if err := wire.CheckJSON(l.text); err != nil {
			return r, fmt.Errorf("the line is no JSON: %w", err)
		}
	}
	addValue(out, contentType, l.text)
	r.JSON = append(out.Close(), '\n')
	return r, nil
}

// addValue adds a value as messages have theirs. What is called JSON is valid.
func addValue(out *wire.Line, contentType string, value []byte) {
	switch {
	case wire.IsJSON(contentType):
		out.Raw("value", bytes.TrimSpace(value))
	case wire.IsText(contentType) && utf8.Valid(value):
		out.Str("value", string(value))
	default:
		out.Raw("value_base64", wire.AppendBase64(nil, value))
	}
}

// keyOf takes the key from a member of a JSON object: a string as it is, a
// number or a truth value as it is written.
func keyOf(text []byte, field string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return "", fmt.Errorf("the line is no JSON object, so it has no field %q for the key", field)
	}
	raw, ok := object[field]
	if !ok {
		return "", fmt.Errorf("the line has no field %q for the key", field)
	}
	key := string(raw)
	switch raw[0] {
	case '"':
		if err := json.Unmarshal(raw, &key); err != nil {
			return "", fmt.Errorf("field %q: %w", field, err)
		}
	case '{', '[', 'n':
		return "", fmt.Errorf("field %q is %s, not a string, a number or a truth value", field, kindOf(raw[0]))
	}
	if _, err := wire.Key(key); err != nil {
		return "", fmt.Errorf("field %q: %w", field, err)
	}
	return key, nil
}

func kindOf(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "null"
}
