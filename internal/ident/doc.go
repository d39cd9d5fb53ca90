// Package ident holds the typed names and numbers of the system: topics,
// partitions, offsets, epochs and the ranges of the key hash. Everything here
// is a value; nothing reads a clock, a file or the network.
package ident
