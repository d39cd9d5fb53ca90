// Package http1 reads what a server answers over HTTP/1.1, for a load generator
// that holds thousands of connections on a few goroutines: answers and streams
// of events are found in the bytes that happen to be there, and what is not
// whole yet waits. It reads the answers of this project's server and of
// net/http, not of every server there is.
package http1
