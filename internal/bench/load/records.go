package load

import (
	"fmt"

	"tidewire/internal/bench/message"
)

// Records says what is published.
type Records struct {
	Topic string
	Bytes int    // of a value
	Keys  int    // records take turns among so many; 0: no key
	Acks  string // all, leader or none
	Batch int    // lines of a body of ndjson
}

// KeyName is the key of a number.
func KeyName(i int) string { return fmt.Sprintf("k%0*d", keyDigits, i) }

const (
	keyDigits  = 7
	slotDigits = 12
	// slotHead makes the number of a slot one without leading zeros.
	slotHead = "1"
)

// numbers puts the blanks of one record together: its key, where it has one,
// and its number.
func (r Records) numbers(dst []int64, n int64) []int64 {
	if r.Keys > 0 {
		dst = append(dst, n%int64(r.Keys))
	}
	return append(dst, n)
}

// keyMember is the key as a member of JSON.
func (r Records) keyMember() string {
	if r.Keys == 0 {
		return ""
	}
	return `"key":"k` + message.Blank(keyDigits) + `",`
}
