// Package requester sees a request to its reply: it asks one server, and where that dies,
// or has no leader to keep the request just then, asks the next with the same correlation
// id, until the request's deadline. To the cluster all of that is one request, so it is
// worked on once and its reply is not lost with the server that was asked.
//
// What waiting does not mend ends it at once: a refusal, a topic that nobody serves, and a
// reply that did not come in time.
package requester
