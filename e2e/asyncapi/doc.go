// Package asyncapi holds frames and events against the AsyncAPI document of a node.
// A Document knows each message of it by what tells messages apart on the wire (the
// op of a line, the name of an event, who sends it), and remembers which of them it has seen, so that
// a test can say that it saw all.
package asyncapi
