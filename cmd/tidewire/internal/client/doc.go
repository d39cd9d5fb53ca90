// Package client speaks the public HTTP API for the command line: typed calls,
// answers kept as the server wrote them, and problems as errors. It retries
// nothing; what may be repeated is for the caller to say.
package client
