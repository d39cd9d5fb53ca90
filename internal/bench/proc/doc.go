// Package proc reads what a process of this machine uses: processor time,
// context switches, reads and writes, memory, files. It is there on Linux alone;
// elsewhere every reading is an error that says so.
package proc
