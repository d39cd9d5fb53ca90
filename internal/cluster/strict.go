package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Strictly reads the JSON of a change, or of what changes have made. It refuses members
// that it does not know: what a newer version says in one would be left out, and two
// nodes would disagree on what a change did.
func Strictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there are bytes after the end")
	}
	return nil
}
