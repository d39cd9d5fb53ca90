package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLineBytes bounds one line: no topic takes a record this long.
const maxLineBytes = 17 << 20

// line is one line of input, without its end.
type line struct {
	source  string // empty for the standard input
	number  int    // from 1
	text    []byte // good for as long as it is held
	tooLong bool   // text is not there
}

// inputs reads files one after another, line by line.
type inputs struct {
	files  []input
	bytes  int64 // of all files together; -1: not known
	at     int
	number int
	passed int64
	r      *bufio.Reader
}

type input struct {
	name string
	io.Reader
	close func() error
}

// openInputs opens every file before the first is read, so that a wrong name
// stops the command before it has sent half of its work.
func openInputs(stdin *os.File, names []string) (*inputs, error) {
	if len(names) == 0 {
		names = []string{"-"}
	}
	in := &inputs{}
	var faults []error
	for _, name := range names {
		if name == "-" {
			in.files = append(in.files, input{Reader: stdin, close: func() error { return nil }})
			in.bytes = -1
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a folder", name)
		}
		if err != nil {
			faults = append(faults, err, f.Close())
			continue
		}
		in.files = append(in.files, input{name: name, Reader: f, close: f.Close})
		switch {
		case !info.Mode().IsRegular():
			in.bytes = -1
		case in.bytes >= 0:
			in.bytes += info.Size()
		}
	}
	if err := errors.Join(faults...); err != nil {
		in.close()
		return nil, usage(err)
	}
	return in, nil
}

func (in *inputs) close() {
	for _, f := range in.files {
		_ = f.close() // only read from
	}
}

// done is how many bytes were read.
func (in *inputs) done() int64 { return in.passed }

// next returns the next line; ok is false at the end of the last file.
func (in *inputs) next() (l line, ok bool, err error) {
	for in.at < len(in.files) {
		f := in.files[in.at]
		if in.r == nil {
			in.r, in.number = bufio.NewReaderSize(f, 256<<10), 0
		}
		l, err := in.line(f.name)
		switch {
		case err == nil:
			return l, true, nil
		case !errors.Is(err, io.EOF):
			return line{}, false, fmt.Errorf("read %s: %w", f.name, err)
		}
		in.r = nil
		in.at++
	}
	return line{}, false, nil
}

func (in *inputs) line(source string) (line, error) {
	l := line{source: source}
	var text []byte
	for {
		part, err := in.r.ReadSlice('\n')
		in.passed += int64(len(part))
		if len(text)+len(part) > maxLineBytes {
			l.tooLong, text = true, nil
		}
		if !l.tooLong {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(text) > 0 || l.tooLong):
			// The last line has no end.
		case err != nil:
			return line{}, err
		}
		in.number++
		l.number = in.number
		text = bytes.TrimSuffix(text, []byte("\n"))
		l.text = bytes.TrimSuffix(text, []byte("\r"))
		return l, nil
	}
}
