// Package groups runs consumer groups at the leaders of their partitions: the shell around
// the machines of package lease, one for each group and partition that this node leads and
// that has live members. A group without members has no machine, no goroutine and no timer.
//
// # Who does what
//
//   - Apply takes in every snapshot, as the host does: which partitions are led here, and
//     what became of groups, members and owners. A machine ends with the leadership, the
//     group or its last member; what waits at it hears of that.
//   - A post stands for a partition that is led here. While it has units it reads the
//     progress of those that are to begin, and looks out for new records, where anybody
//     waits for some.
//   - A unit is one group on one partition: a machine behind a mutex, and who waits for it.
//     After each call of the machine it carries out what came of it: answers, the next
//     deadline, what is to be committed, released or appended to the dead-letter topic.
//   - The gatherer makes one commit of what all units have to say, one at a time.
//   - The undertaker brings dead letters to their topics, each with a time of its own, so
//     that none waits for another.
//
// # The life of a lease
//
// Take waits until the node has acted on the caller's snapshot, reads records from the log
// into the machine as far as it wants some, and leases what the machine gives. Where there
// is nothing it waits at all the partitions it named; one that has something wakes one who
// can have it, and he, when he has taken, the next. A caller in the same process may wait by
// a Lookout, which takes no goroutine: it is told when to look. Settle goes into the machine at once;
// what it acknowledges is answered when the coordinator holds it.
//
// Nothing is leased or taken in while this node's own lease of a broker is over, or by a
// leader of another epoch than the log's. What was read of a group's progress is as of a
// snapshot that named this leader, and since then nobody else can commit there.
package groups
