// Package link carries what replicas have for one another: one stream from each broker
// to each broker that leads partitions it follows, opened by the follower.
//
// A replica only says that there is something for a node in a partition. Where nothing else
// is under way whoever says so fetches and sends it at once, without waiting. Under load the
// rounds of the journal gather: when it takes what was appended, that goes to the followers
// before it is written here, and what a commit has brought is said to leaders in one message
// each. What fits in no round, or would have to wait, is for the stream's sender: whatever
// all partitions have by then goes into one message. So messages grow with the load, a lone
// batch waits for nobody, and nothing is queued but the names of partitions. A slow peer is
// a sender that waits.
//
// A stream belongs to one life on each side. When it ends, both sides say so to every
// replica it carried, and the follower tells the coordinator that its leader may be dead.
// A leader that has nothing to say sends an empty message from time to time, so that
// its followers know that they hear it.
package link
