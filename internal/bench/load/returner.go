package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// returner is a subscriber that comes back: after `closing` it waits as long as
// that says, after any other end a random time below a bound that doubles with
// each try, and it goes on where it was. It belongs to its loop while it is
// connected, and to comeBack while it is not.
type returner struct {
	home  *home
	loop  *sock.Loop
	conn  *sock.Conn
	key   [4]byte
	tally message.Tally

	events *http1.Events // of SSE; nil: WebSocket
	began  time.Time     // the attempt
	joined bool          // is subscribed

	cursor string
	offset int64 // the last one seen; -1: none
	due    time.Time
}

// Bounds of the first try's wait and of any.
const (
	firstBackoff = 250 * time.Millisecond
	mostBackoff  = 20 * time.Second
)

func backoff(try int) time.Duration {
	return 1 + rand.N(min(mostBackoff, firstBackoff<<min(try, 10)))
}

// open connects and asks for what comes after the last message seen. The answer
// comes by Receive.
func (x *returner) open() (err error) {
	h := x.home
	h.attempts.Add(1)
	x.began, x.joined, x.events, x.due = time.Now(), false, nil, time.Time{}
	sub := subscription{topic: h.Topic, cursor: x.cursor}
	if h.Transport == SSE {
		var head http1.Head
		if x.conn, head, err = dialEvents(h.Target, sub); err != nil {
			return err
		}
		x.events = http1.NewEvents(head, x)
	} else {
		if x.conn, err = dialWebSocket(h.Target); err != nil {
			return err
		}
		line := `{"op":"subscribe","id":1,"topic":` + strconv.Quote(h.Topic)
		if x.cursor != "" {
			line += `,"cursor":` + strconv.Quote(x.cursor)
			if x.offset >= 0 {
				line += `,"after":{"0":` + strconv.FormatInt(x.offset, 10) + `}`
			}
		}
		err = x.conn.Write(frame.Append(nil, frame.Text, []byte(line+"}"), x.key))
	}
	if err == nil {
		err = x.loop.Add(x.conn, x)
	}
	if err != nil {
		x.conn.Cut()
		if x.joined {
			h.subscribed.Add(-1)
		}
	}
	return err
}

func (x *returner) join(recovered bool) {
	if !recovered {
		x.home.gaps.Add(1)
	}
	x.joined = true
	x.home.returned(time.Since(x.began))
	x.home.subscribed.Add(1)
}

// Receive takes in what the server says.
func (x *returner) Receive(b []byte) (used int, err error) {
	if x.events == nil {
		return Texts(b, x.conn, x.key, x.lines)
	}
	if used, err = x.events.Feed(b); err != nil {
		return used, err
	}
	if id := x.events.ID(); len(id) > 0 {
		x.cursor = string(id)
		if !x.joined {
			x.join(true) // a gap would have said so
		}
	}
	return used, nil
}

var offsetHead = []byte(`"offset":`)

// lines takes in a text frame.
func (x *returner) lines(payload []byte) error {
	for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
		if !bytes.HasPrefix(line, []byte(`{"op":"`)) {
			if err := x.take(line); err != nil {
				return err
			}
			continue
		}
		if bytes.HasPrefix(line, messagesHead) {
			continue
		}
		n, err := readNotice(line)
		if err != nil {
			return err
		}
		switch n.Op {
		case "subscribed":
			fresh := x.cursor == ""
			x.cursor = n.Cursor
			x.join(fresh || n.Recovered)
		case "cursor":
			x.cursor = n.Cursor
		case "closing":
			return x.told(n.RetryAfter)
		case "gap":
			x.home.gaps.Add(1)
			x.cursor, x.offset = n.Cursor, -1
		case "error":
			return n.refusal()
		}
	}
	return nil
}

// Event takes in an event.
func (x *returner) Event(name, data []byte) error {
	switch string(name) {
	case "message":
		return x.take(data)
	case "closing":
		var n notice
		if err := json.Unmarshal(data, &n); err != nil {
			return err
		}
		x.cursor = string(x.events.ID())
		return x.told(n.RetryAfter)
	case "gap":
		x.home.gaps.Add(1)
		return nil
	}
	return fmt.Errorf("the stream says %s: %.300s", name, data)
}

func (x *returner) take(line []byte) error {
	n, err := message.Number(line, x.home.Bytes)
	if err != nil {
		return err
	}
	if at := bytes.Index(line, offsetHead); at >= 0 {
		digits := line[at+len(offsetHead):]
		if end := bytes.IndexByte(digits, ','); end > 0 {
			if x.offset, err = strconv.ParseInt(string(digits[:end]), 10, 64); err != nil {
				return err
			}
		}
	}
	x.home.fresh.Add(x.tally.Take(n))
	return nil
}

// told notes when to come back.
func (x *returner) told(after string) error {
	d, err := time.ParseDuration(after)
	if err != nil {
		return fmt.Errorf("the server says closing with retry_after %q", after)
	}
	x.due = time.Now().Add(d)
	x.home.tells(x.due)
	return nil
}

// Ended begins the way back.
func (x *returner) Ended(error) {
	if x.joined {
		x.home.subscribed.Add(-1)
	}
	x.home.crew.wg.Go(x.comeBack)
}

// comeBack tries until it is connected.
func (x *returner) comeBack() {
	h := x.home
	wait := time.Until(x.due)
	if x.due.IsZero() {
		wait = backoff(0)
	}
	for try := 1; ; try++ {
		timer := time.NewTimer(wait)
		select {
		case <-h.crew.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		h.knocks <- struct{}{}
		err := x.open()
		<-h.knocks
		if err == nil {
			return
		}
		wait = backoff(try)
		var no *Refusal
		if errors.As(err, &no) {
			h.refused.Add(1)
			if no.after > 0 {
				h.refusedTold.Add(1)
			}
			wait += no.after // whole seconds: without a random time more, those that knocked together would again
		} else {
			h.unreachable.Add(1)
		}
	}
}
