// Package wire is the JSON that clients see: the strict reading of what they
// send (frames, bodies, lines of ndjson) and the writing of what they get
// (messages, answers, pushes). It is pure: bytes in, values out.
//
// Reading is strict so that a mistake never passes in silence: an unknown or
// repeated name, a value of another type or out of bounds is an error of
// package fault that names the field and what is allowed there.
package wire
