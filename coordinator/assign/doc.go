// Package assign decides which member of a group is to own which partition. It is pure:
// the same members and owners always give the same answer.
//
// It promises that members differ by one partition at most, and that of all ways to be
// so it takes one in which the fewest partitions leave their owners. What it does not
// know: whether an owner still works on what it has to give up. Its answer is what is to
// be; the state machine lets go first.
package assign
