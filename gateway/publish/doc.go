// Package publish carries records from clients to the leaders of their
// partitions. Each partition has a lane: what arrives while a batch is under
// way waits and becomes the next batch, so batches grow with the load and a
// lone record waits for nobody. One batch is under way per lane, so a retry
// never overtakes.
//
// The life of one record: Publish finds the topic, checks the record against
// its bounds, picks the partition and puts a copy into the lane's last waiting
// batch; the batch goes to the leader; the leader's answer reaches the
// record's done function. A record whose time is up is answered at once: with
// leader-unavailable while no leader has seen it (and it is then taken out of
// its batch), with unknown-outcome after that.
//
// What is under way is bounded for the node, in bytes and by what leaders take
// within a second or so; past the bound Publish blocks its caller, who stops
// reading from its client.
package publish
