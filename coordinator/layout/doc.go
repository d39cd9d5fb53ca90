// Package layout cuts the space of key hashes into the ranges that the
// partitions of a generation own. It is pure: numbers in, ranges out.
//
// A layout covers every hash exactly once. Where the space does not divide
// evenly the first ranges are one hash wider, so that no remainder is left over
// and none is owned twice.
package layout
