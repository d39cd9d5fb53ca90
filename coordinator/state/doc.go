// Package state is the coordinator's state machine: everything the cluster
// has agreed on as one value, and the commands that change it.
//
// It is pure. A command goes in with its Raft index, an answer comes out; there
// is no clock (time arrives in the command and is forced monotone), no
// randomness (ids arrive in the command), no I/O and no dependence on the order
// of a map. Two machines fed the same commands hold the same bytes: that is what
// makes a snapshot plus the commands after it equal to a full replay.
//
// The life of a command: Encode puts a format version and a CRC around it, Raft
// keeps it, Apply checks both, finds its request id in the table of recent
// answers (a retry gets the first answer again) or changes the state, and
// answers. A refusal (a bad setting, a name taken) is an answer like any other.
// An error of Apply means that the bytes are not a command this version can
// apply: the store is damaged or newer than the program, and the process must end
// rather than skip an entry.
//
// A Snapshot handed out is immutable: the machine copies a map before it changes
// one that a snapshot shares. So handing one out costs nothing until the next
// change, and a long replay without readers copies nothing at all.
package state
