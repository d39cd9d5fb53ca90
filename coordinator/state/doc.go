// Package state is the coordinator's state machine: everything the cluster
// has agreed on as one value, and the commands that change it.
//
// It is pure. A command goes in with its Raft index, an answer comes out; there
// is no clock (time arrives in the command and is forced monotone), no
// randomness (ids arrive in the command), no I/O and no dependence on the order
// of a map. Two machines fed the same commands hold the same bytes: that is what
// makes a snapshot plus the commands after it equal to a full replay.
//
// The life of a command: Encode puts a format version and a CRC around it, Raft
// keeps it, Apply checks both, finds its request id in the table of recent
// answers (a retry gets the first answer again) or changes the state, and
// answers. A refusal (a bad setting, a name taken) is an answer like any other.
// An error of Apply means that the bytes are not a command this version can
// apply: the store is damaged or newer than the program, and the process must end
// rather than skip an entry.
//
// The life of a node: Register gives it a broker epoch and ends its former life;
// Activate says that it has noted that epoch, and from then on it is alive and can lead;
// Expire, by the verdict of somebody else, ends the life. What follows for partitions
// happens in the same command: who is in sync, who is electable though not in sync, who
// leads in which epoch. So a snapshot never shows a leader that is dead, or one that has
// to wait for somebody who is.
//
// Whoever is in a partition's ISR or ELR holds all that is committed of it. A replica
// enters the ISR by its leader's word alone, and the ELR when it leaves an ISR that is
// too small then for the high watermark to move; what may have lost records leaves both.
// Where nobody of them is alive the partition waits, unless its topic asks for an unclean
// election, which is marked.
//
// The life of a group: GroupRegister fixes where it starts; MemberJoin, MemberLeave and
// MemberLapse say who is in it, and in the same command who owns which partition; Release
// hands a partition over once its owner has let go. Each change of hands is an assignment
// epoch, each join a member epoch, each reset a reset epoch: a Commit names those that its
// word rests on, and is taken part by part. What groups have done is progress, which is held
// apart from what a Snapshot shows: a Commit is far more frequent than all else, and copies
// nothing but the account of one group on one partition.
//
// What the machine does not know: time, but as it comes in commands; who really is alive;
// what is on a disk.
//
// A Snapshot handed out is immutable: the machine copies a map before it changes
// one that a snapshot shares. So handing one out costs nothing until the next
// change, and a long replay without readers copies nothing at all.
package state
