package boot

import (
	"strings"

	"tidewire/internal/fault"
)

// Nearest ends a message about a name that is not known: with the known one
// that may be meant, or, where none is near, with what to look at. The names
// come without the prefix that they are spelled with: it would make any two of
// them alike.
func Nearest(name string, known []string, prefix, otherwise string) string {
	if near, close := fault.Nearest(name, known); close {
		return "; the nearest is " + prefix + near
	}
	return "; " + otherwise
}

// AllSettings is where all settings are listed.
const AllSettings = "tidewire serve --help lists them all"

// noSuch says that a setting is not known, by its name as in the file.
func noSuch(name string, known []string, prefix string) string {
	if why, ok := Lacking(name); ok {
		return why
	}
	return "no such setting" + Nearest(name, known, prefix, AllSettings)
}

// Lacking says why there is no setting of this name yet, where the nearest name
// would lead astray. The name is that in the file.
func Lacking(name string) (why string, ok bool) {
	if strings.HasPrefix(strings.ToLower(name), "tls_") {
		return "this version has no TLS; it comes with a later one. Put a proxy in front of the node", true
	}
	return "", false
}
