// Package census is what a node knows of the cluster's other nodes by asking
// them: their figures and connections, where the partitions that they lead
// begin and end. It asks all at once and waits for none longer than a bound: what
// did not answer is missing, and the answer says so or leaves it out.
//
// All the time it looks at some of the others in turn, and evaluates the alerts as soon
// as something changes, so every node tells them for itself. What it sees of others also
// tells a node that is cut off from one whose coordinators are all down.
package census
