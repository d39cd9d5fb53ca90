// Package ports gives tests addresses of the loopback that stay theirs while nothing
// listens there, for servers that come back where they were.
//
// A port that the kernel picked is not such a one: it is of the range from which the
// kernel also takes those of outgoing connections, anybody's, and it does so as soon as
// the server is down.
package ports
