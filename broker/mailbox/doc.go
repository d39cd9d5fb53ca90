// Package mailbox keeps, at the leader of a partition, the replies to requests there whose
// gateway is gone, until the deadline of each request or until this node leads no more. A
// repeat of the request collects its reply here, from any gateway.
//
// Only requests with a correlation id of their client's come here: no other can be repeated.
// The mailbox is memory: with its leader it is lost, and the request ends in reply-timeout.
package mailbox
