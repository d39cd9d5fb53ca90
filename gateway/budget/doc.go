// Package budget bounds the bytes that a node holds in memory for its clients:
// answers that are not taken yet and bodies that are not whole yet.
//
// It promises that shares together hold no more than the budget, but for one that
// alone needs more. It does not promise fairness between those that wait; it does
// promise that whoever holds much is the first who gets no more: see Share.Try.
//
// The life of one share: it takes what its owner is about to allocate, more of
// it as the need grows, gives back what was freed, and at the end the rest.
package budget
