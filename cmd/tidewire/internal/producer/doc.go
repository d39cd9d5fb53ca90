// Package producer publishes a stream of lines to one topic, each exactly once:
// it routes by key as the servers do, gathers lines into batches by partition,
// numbers them, and repeats a batch with the same numbers until it knows what
// became of every line.
//
// One batch of a partition is under way at a time, so the lines of a key stay
// in order. The same number sent twice is kept once; that is the servers'
// promise, and all that makes the repeating safe. Where numbers do not hold
// (acks=none, or a server that forgot the producer while an answer was missing) a
// line whose fate is open is reported as unknown and never sent again.
package producer
