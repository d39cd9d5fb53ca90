package wire

import "tidewire/internal/ident"

// Purge is the body of POST /topics/{topic}/purge.
type Purge struct {
	// Before has the first offset that is kept of each partition that is named; nil:
	// everything goes that is committed now.
	Before map[ident.Index]ident.Offset
}

// ParsePurge reads it. One that names no partition is no purge of everything: who means
// that leaves the field out.
func ParsePurge(body []byte) (p Purge, err error) {
	err = Object(body, []string{"before"}, func(_ string, v Value) (err error) {
		p.Before, err = v.offsets()
		return err
	})
	if err == nil && p.Before != nil && len(p.Before) == 0 {
		err = invalidField("before", "names no partition; leave it out to purge all of them up to their high watermarks")
	}
	return p, err
}
