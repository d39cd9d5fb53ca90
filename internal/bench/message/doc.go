// Package message makes the messages of a load and finds them again in what a
// server delivers, both without encoding or decoding JSON per message: a value
// has its number at a fixed place, so making one is copying a stencil and
// writing digits, and reading one is looking at the end of a line.
package message
