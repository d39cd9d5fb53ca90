package client

import (
	"bytes"
	"encoding/json"
)

// withRaw decodes an object, and keeps the server's own words beside its fields: what
// is printed as JSON has all that the server said. The fields are given as a type
// without an UnmarshalJSON of its own.
func withRaw(b []byte, fields any, raw *json.RawMessage) error {
	if err := json.Unmarshal(b, fields); err != nil {
		return err
	}
	*raw = oneLine(b)
	return nil
}

func oneLine(b []byte) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return bytes.Clone(b)
	}
	return out.Bytes()
}
