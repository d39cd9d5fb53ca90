// Package partition decides, for one partition at its leader, what becomes of
// each record that arrives: kept at which offset, found again, or refused. It
// is pure: the time and the records come in, verdicts go out.
//
// Its state is a fold of the partition's log: per producer the last sequences
// with their offsets, and the Idempotency-Keys of the topic's window. So it can
// be rebuilt from the log at any time, and a snapshot of it is only a shorter
// way. Records that are still on their way to the disk count as well, so a
// repeat that arrives meanwhile is recognised.
package partition
