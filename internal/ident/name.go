package ident

import (
	"errors"
	"fmt"
	"strings"
)

// MaxNameBytes bounds the name of a topic.
const MaxNameBytes = 249

// ErrReserved marks a name that the API keeps for itself.
var ErrReserved = errors.New("reserved name")

// CheckTopicName says what is wrong with a topic name a client wants to
// create or write: [A-Za-z0-9][A-Za-z0-9._-]{0,248}, none of the words of the
// API, and no leading underscore (errors.Is ErrReserved).
func CheckTopicName(name string) error {
	if strings.HasPrefix(name, "_") {
		return fmt.Errorf("%w: names that begin with _ are the cluster's own; choose another topic name", ErrReserved)
	}
	if name == "repartition" || name == "subscribe" {
		return fmt.Errorf("%w: %q is a word of the API; choose another topic name", ErrReserved, name)
	}
	if !wellFormed(name) {
		return fmt.Errorf("a topic name is 1 to %d of A-Z a-z 0-9 . _ - and begins with a letter or a digit, not %q", MaxNameBytes, clip(name))
	}
	return nil
}

func wellFormed(name string) bool {
	if name == "" || len(name) > MaxNameBytes {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// CheckGroupName says what is wrong with the name of a consumer group: it is one as of a
// topic, but for the words of the API under a topic's groups.
func CheckGroupName(name string) error {
	switch {
	case strings.HasPrefix(name, "_"):
		return fmt.Errorf("%w: names that begin with _ are the cluster's own; choose another group name", ErrReserved)
	case name == "register" || name == "node":
		return fmt.Errorf("%w: %q is a word of the API; choose another group name", ErrReserved, name)
	case !wellFormed(name):
		return fmt.Errorf("a group name is 1 to %d of A-Z a-z 0-9 . _ - and begins with a letter or a digit, not %q", MaxNameBytes, clip(name))
	}
	return nil
}

// MaxMemberBytes bounds the id of a group's member.
const MaxMemberBytes = 64

// CheckMember says what is wrong with the id of a group's member: [A-Za-z0-9._~-]{1,64}.
func CheckMember(id string) error {
	fine := id != "" && len(id) <= MaxMemberBytes
	for i := range len(id) {
		c := id[i]
		fine = fine && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '~' || c == '-')
	}
	if !fine {
		return fmt.Errorf("a member is 1 to %d of A-Z a-z 0-9 . _ ~ -, not %q", MaxMemberBytes, clip(id))
	}
	return nil
}
