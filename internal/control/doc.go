// Package control is the coordinator as a node without that role has it: the same
// methods over the network. It follows the change feed of one coordinator at a time
// and sends changes, renewals and suspicions to the one that leads.
//
// It never gives up and never goes back: a lost coordinator is followed by another
// one, and an index older than the latest is not applied. It decides nothing.
//
// The life of a change: Propose makes a request id, asks the coordinator that leads
// as far as this node knows, and goes where that points; a try that is lost on the way
// is repeated under the same id, so that the change is made once. When the answer is
// there, Propose waits until the feed has it too.
package control
