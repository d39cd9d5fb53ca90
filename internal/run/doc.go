// Package run is the life of the process: named steps that start in order and
// stop in the reverse order, each within a deadline.
//
//	start 1 → start 2 → … → ready … signal, or a step fails … → stop n → … → stop 1
//
// A step that keeps running (a loop, a server) may end only when it is told to;
// if it ends earlier, everything stops and the process fails: half a node serves
// nobody. The first signal asks for an orderly stop, a second one ends the
// process at once. What each step does is not known here.
//
// Beside it stand the two things that concern a process's supervisor: Notify
// tells systemd where the process is in its life, and Backoff makes a node whose
// disk just failed wait before it tries that disk again.
package run
