// Package memnet is a listener whose connections are in memory, so that a
// server and its clients fit into a bubble of testing/synctest. A connection
// has no buffer: a write waits until it is read. What a kernel adds to that
// (bytes taken for a client that does not read, resets) needs real sockets.
package memnet
