// Package census is what a node knows of the cluster's other nodes by asking
// them: their figures and connections, where the partitions that they lead
// begin and end. It asks all at once and waits for none longer than a bound: what
// did not answer is missing, and the answer says so or leaves it out.
//
// Once a second it takes everybody's figures and evaluates the alerts, so every
// node tells them for itself.
package census
