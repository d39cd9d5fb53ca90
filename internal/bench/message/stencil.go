package message

import (
	"strings"

	"tidewire/internal/bench/frame"
)

// Blank is room for a number of a fixed width in the text of a stencil.
func Blank(width int) string { return strings.Repeat("\x00", width) }

// Stencil is bytes that are the same every time but for numbers of a fixed
// width. A masked one is masked once, its digits one by one: a publish costs the
// load generator a copy and a few divisions.
type Stencil struct {
	b      []byte
	blanks []blank
}

type blank struct {
	at, width int
	mask      [4]byte // of the first digit on
}

// NewStencil makes a stencil of a text with blanks.
func NewStencil(text string) Stencil { return newStencil([]byte(text), 0, [4]byte{}) }

// NewFrame makes a stencil of a client's text frame.
func NewFrame(payload string, key [4]byte) Stencil {
	masked := frame.Append(nil, frame.Text, []byte(payload), key)
	s := newStencil([]byte(payload), len(masked)-len(payload), key)
	s.b = masked
	return s
}

func newStencil(text []byte, shift int, key [4]byte) Stencil {
	s := Stencil{b: text}
	for i := 0; i < len(text); i++ {
		if text[i] != 0 {
			continue
		}
		n := blank{at: i + shift}
		for j := range n.mask {
			n.mask[j] = key[(i+j)&3]
		}
		for ; i < len(text) && text[i] == 0; i++ {
			n.width++
		}
		s.blanks = append(s.blanks, n)
	}
	return s
}

// Append writes the stencil with numbers in its blanks, in their order.
func (s *Stencil) Append(dst []byte, numbers ...int64) []byte {
	start := len(dst)
	dst = append(dst, s.b...)
	for i, n := range s.blanks {
		v := numbers[i]
		digits := dst[start+n.at : start+n.at+n.width]
		for j := n.width - 1; j >= 0; j-- {
			digits[j] = byte('0'+v%10) ^ n.mask[j&3]
			v /= 10
		}
	}
	return dst
}

// Len is the size of what Append writes.
func (s *Stencil) Len() int { return len(s.b) }
