package load

import (
	"bytes"
	"fmt"
	"strconv"

	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// frames publishes over WebSocket, a frame a record.
type frames struct {
	r       Records
	key     [4]byte
	stencil message.Stencil
	scratch []int64
	conn    *sock.Conn
	l       Answers
	line    func([]byte) error
}

func newFrames(r Records) *frames {
	f := &frames{r: r, key: MaskKey()}
	acks := ""
	if r.Acks != "all" {
		acks = `,"acks":"` + r.Acks + `"`
	}
	f.stencil = message.NewFrame(`{"op":"publish","id":`+slotHead+message.Blank(slotDigits)+`,"topic":`+strconv.Quote(r.Topic)+acks+`,`+
		r.keyMember()+`"value":`+message.Value(r.Bytes)+`}`, f.key)
	f.line = f.text
	return f
}

// Open connects.
func (f *frames) Open(t Target) (c *sock.Conn, err error) {
	f.conn, err = dialWebSocket(t)
	return f.conn, err
}

// Append writes a frame.
func (f *frames) Append(dst []byte, slot int, n int64) []byte {
	f.scratch = f.r.numbers(append(f.scratch[:0], int64(slot)), n)
	return f.stencil.Append(dst, f.scratch...)
}

// Read takes the answers of whole frames.
func (f *frames) Read(b []byte, l Answers) (int, error) {
	f.l = l
	return Texts(b, f.conn, f.key, f.line)
}

var (
	published = []byte(`{"op":"published","id":` + slotHead)
	echoed    = []byte(`{"op":"publish","id":` + slotHead) // by the floor
	failed    = []byte(`{"op":"error"`)
	closing   = []byte(`{"op":"closing"`)
)

// text reads the answers of a frame, a line each.
func (f *frames) text(payload []byte) error {
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte{'\n'})
		payload = rest
		number, ok := bytes.CutPrefix(line, published)
		if !ok {
			number, ok = bytes.CutPrefix(line, echoed)
		}
		var err error
		switch {
		case ok:
			slot, ok := message.Digits(number, slotDigits)
			if !ok {
				return fmt.Errorf("an answer of the server is not as expected: %.200s", line)
			}
			err = f.l.Answered(int(slot), 1, 0, nil)
		case bytes.HasPrefix(line, failed):
			err = f.refused(line)
		case bytes.HasPrefix(line, closing):
			_, err = readNotice(line)
			if err == nil {
				err = fmt.Errorf("the server is closing: %s", line)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *frames) refused(line []byte) error {
	n, err := readNotice(line)
	if err != nil {
		return err
	}
	if n.ID == 0 {
		return n.refusal()
	}
	slot, _ := message.Digits([]byte(strconv.FormatInt(n.ID, 10)[len(slotHead):]), slotDigits)
	return f.l.Answered(int(slot), 0, 1, n.refusal())
}
