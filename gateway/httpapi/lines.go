package httpapi

import (
	"bufio"
	"errors"
	"io"
)

// lineReader takes a body apart into lines in bounded memory.
type lineReader struct {
	in   *bufio.Reader
	most int    // bytes of a line
	long []byte // a line that does not fit in's buffer
	// hold is asked before long gets n bytes of room in place of those it has;
	// nil: it may.
	hold func(has, n int) error
}

// keepRoom is how much room for long lines is kept from one to the next, in
// buffers of in.
const keepRoom = 4

// newLineReader reads lines of at most most bytes, readAhead bytes at a time.
func newLineReader(r io.Reader, most, readAhead int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, readAhead), most: most}
}

// errLineTooLong says that a line was passed over; the next one can be read.
var errLineTooLong = errors.New("line too long")

// next is the next line without its newline, valid until the next call. io.EOF
// comes after the last line, whether that ended in a newline or not. Another
// error ends the body; partial says whether it came inside a line.
func (l *lineReader) next() (line []byte, partial bool, err error) {
	if cap(l.long) > keepRoom*l.in.Size() {
		if err := l.room(0); err != nil {
			return nil, false, err
		}
	}
	line, err = l.in.ReadSlice('\n')
	if err == nil && len(line)-1 <= l.most {
		return line[:len(line)-1], false, nil
	}
	l.long = l.long[:0]
	if err := l.add(line); err != nil {
		return nil, true, err
	}
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.long) > l.most {
			tooLong = true
			l.long = l.long[:0]
		}
		line, err = l.in.ReadSlice('\n')
		if err := l.add(line); err != nil {
			return nil, true, err
		}
	}
	if err != nil && err != io.EOF {
		return nil, tooLong || len(l.long) > 0, err
	}
	if err == io.EOF && len(l.long) == 0 && !tooLong {
		return nil, false, io.EOF
	}
	n := len(l.long)
	if err == nil {
		n-- // the newline
	}
	if tooLong || n > l.most {
		return nil, false, errLineTooLong
	}
	return l.long[:n], false, nil
}

// add appends a part of a line to long.
func (l *lineReader) add(part []byte) error {
	if n := len(l.long) + len(part); n > cap(l.long) {
		if err := l.room(max(n, 2*cap(l.long))); err != nil {
			return err
		}
	}
	l.long = append(l.long, part...)
	return nil
}

// room gives long room for n bytes.
func (l *lineReader) room(n int) error {
	if l.hold != nil {
		if err := l.hold(cap(l.long), n); err != nil {
			return err
		}
	}
	l.long = append(make([]byte, 0, n), l.long[:min(n, len(l.long))]...)
	return nil
}
