// Package fault sorts errors by what the caller can do about them. A Kind is
// the only part of an error that crosses a process boundary; messages are for
// people and are never compared. The table of kinds is the table of codes in
// the public contract: one row gives the code, the HTTP status and whether the
// same call may be tried again.
package fault
