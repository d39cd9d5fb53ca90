// Package rpc holds what the roles say to one another: the requests and
// answers as plain values, and their carriage between processes. In one
// process the roles call each other through their own small interfaces with
// these same values, so a lone node never opens a socket to itself.
package rpc
