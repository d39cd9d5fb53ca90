// Package publish carries records from clients to the leaders of their
// partitions. Each partition has a lane: what arrives while a batch is under
// way waits and becomes the next batch, so batches grow with the load and a
// lone record waits for nobody. One batch is under way per lane, so a retry
// never overtakes.
//
// The life of one record: Publish finds the topic, checks the record against
// its bounds, picks the partition and puts a copy into the lane's last waiting
// batch; the batch goes to the leader; the leader's answer reaches the
// record's done function.
//
// A record that comes with neither a producer nor an Idempotency-Key is
// numbered by its lane, which is a producer of its own to the leader. So a try
// that was refused for the moment, or whose answer got lost on the way, is
// followed by another with the same batch until the records' time is up, at a
// new leader the moment there is one, and the record stands in the log once. Of
// a batch that never reached a log, records whose time is up are taken out, and
// those behind them move up in number: who was told that nothing was kept was
// told the truth. Once a try may have reached a log the batch stays as it is,
// and the answer at the end of the time is unknown-outcome. Then the lane takes
// another identity, as it does after a minute without records, and where a
// leader no longer knows what came before.
//
// What is under way is bounded for the node, in bytes and by what leaders take
// within a second or so; past the bound Publish blocks its caller, who stops
// reading from its client.
package publish
