// Package router brings a gateway's records to the leaders of their partitions
// and reads from them, wherever they are: a partition's leader is what the
// newest snapshot names, in this process or at another node.
//
// It promises that a batch goes to one leader, in the epoch that it was routed
// by, and that a try whose outcome is not known says so; whether to try again is
// the lane's affair. Bounds, times and ends of epochs are the leader's word. A
// replica of this node that is in sync gives its readers what it has; where it
// has nothing, is behind or does not serve, the leader is asked.
//
// Who waits at the end of a partition that another node leads waits for a
// watcher, which asks that leader for what comes next and does not get an answer
// before there is some: the records are on their way the moment they are
// committed, and are kept for those who waited. There is one watcher for each
// place that somebody waits at, and it ends after a few seconds, with an error,
// or when the leader has moved.
package router
