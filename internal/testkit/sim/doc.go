// Package sim runs a cluster in one goroutine: the production code of brokers and
// coordinator in a world whose network, disks, processes and clocks are drawn from a
// seed. What was a race is an order of events, and an order of events can be played
// again.
//
// # What is real and what is not
//
// Real are broker/replica with broker/replication and broker/partition below it, and
// coordinator/state with what watches over lives and leaders. The world stands in for
// what surrounds them: files (Disk, which loses what was not synced), streams between
// brokers and calls (Network, which delays, holds and cuts), Raft (Council, a log that
// agrees with itself and may leave the asker without an answer), processes that are
// killed, paused and started again. Producers repeat as the lanes of a gateway do, and
// readers move between a partition's leader and its in-sync followers. In one run of four
// two consumer groups, one of each mode, are at work, with broker/lease at the leaders; the
// dead-letter topic and the sessions of their members are models.
//
// # The life of a run
//
// A seed gives the constants of a cluster (Setup), a schedule of faults, and every
// delay. Until the schedule ends faults come and go; after that the world heals, all of
// it or all but one broker, and everything that was begun has to come to an end. After
// every step the invariants are checked against what the world knows and no broker
// does: which records are committed, and what is on whose disk (truth.go, invariants.go).
//
// A run that breaks one is played again with fewer faults, as long as it breaks the
// same, so what is printed is short (shrink.go).
//
// # What it does not do
//
// It finds nothing in goroutines, locks, files or sockets: those have tests of their
// own. Repartition and compaction are not in it.
package sim
