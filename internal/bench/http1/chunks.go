package http1

import (
	"bytes"
	"fmt"
	"strconv"
)

// Chunks takes a chunked body apart as it comes.
type Chunks struct {
	left  int  // bytes of the chunk
	inner bool // inside one
	last  bool // the chunk of no bytes has come
	done  bool
}

// Done reports that the body has ended.
func (c *Chunks) Done() bool { return c.done }

// Next gives the next piece of the body and how many bytes of b it has used;
// none where more are needed.
func (c *Chunks) Next(b []byte) (data []byte, used int, err error) {
	if c.done || len(b) == 0 {
		return nil, 0, nil
	}
	if c.inner && c.left > 0 {
		n := min(c.left, len(b))
		c.left -= n
		return b[:n], n, nil
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxHead {
			return nil, 0, fmt.Errorf("the size of a chunk is longer than %d bytes", maxHead)
		}
		return nil, 0, nil
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	switch {
	case c.last: // trailers, then an empty line
		c.done = len(line) == 0
	case c.inner: // the end of the line after the data
		if len(line) > 0 {
			return nil, 0, fmt.Errorf("a chunk is longer than it said: %.50q", line)
		}
		c.inner = false
	default:
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil {
			return nil, 0, fmt.Errorf("%.50q is no size of a chunk", line)
		}
		c.left, c.inner, c.last = int(n), n > 0, n == 0
	}
	return nil, end + 1, nil
}
