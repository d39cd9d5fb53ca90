// Package boltcheck reads a bbolt file without opening it as a database: with
// plain reads, no memory map and no trust. Every pointer is followed only after
// it was checked, so a damaged file gives an error, never a panic or a bus error,
// and nothing is written.
//
// It checks what bbolt does not: that both meta pages are whole, that each page
// is exactly filled (so that a lowered element count is noticed), that no page is
// used twice, and that keys are in order down the tree. It cannot check the
// values; those who wrote them put checksums into them.
package boltcheck
