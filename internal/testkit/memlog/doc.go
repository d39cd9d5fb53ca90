// Package memlog is a broker and its topics in memory, for tests of what reads
// from a broker and routes by a snapshot. It keeps its promises as a broker
// does: whole batches, bounds with every answer, the same kinds of errors. And
// it does at a word what a broker does when it must: retention, another
// leader, the loss of what was not replicated, damage, absence.
//
// It does not judge producers: whatever is appended is committed at once. The
// time of a batch is its number, counted over all partitions from 1, so that a
// test can name one. A test that names a topic's partition wrongly panics.
//
// All methods may be called at any time from any goroutine.
package memlog
