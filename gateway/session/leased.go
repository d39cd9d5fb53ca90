package session

import (
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

const (
	// leasedBytes and leasedMessages are how much is leased at once for a connection.
	leasedBytes    = 64 << 10
	leasedMessages = 256
	// roomPause is how long a membership waits where the node holds as much as it may.
	roomPause = 50 * time.Millisecond
)

// Room is of groups.Outlet, like all that follows. What is leased counts against what the
// node holds, until a turn writes it.
func (x *membership) Room() (messages, bytes int) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.unsent || x.gone || s.over || s.draining || s.verdict != nil || x.credit == 0 {
		return 0, 0
	}
	if x.share.Held() == 0 && !x.share.Try(leasedBytes) {
		time.AfterFunc(roomPause, x.wake)
		return 0, 0
	}
	if x.credit == unbounded {
		return leasedMessages, leasedBytes
	}
	return int(min(x.credit, leasedMessages)), leasedBytes
}

func (x *membership) Woken() <-chan struct{} { return x.woken }

func (x *membership) wake() {
	select {
	case x.woken <- struct{}{}:
	default: // it has yet to look
	}
}

// Messages puts what was leased into the outbox.
func (x *membership) Messages(lines [][]byte, bytes int) bool {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(lines) == 0 || x.gone || s.over {
		x.share.Close()
		return false
	}
	if held := int(x.share.Held()); bytes < held {
		x.share.Give(int64(held - bytes))
	} else {
		x.share.Try(int64(bytes - held)) // one large record: it is there in any case
	}
	s.pushLocked(wire.Open(nil, "messages").Str("sub", x.name).Int("count", int64(len(lines))).Close())
	for _, line := range lines {
		s.out = append(append(s.out, '\n'), line...)
	}
	x.unsent = true
	if x.credit != unbounded {
		x.credit -= int64(len(lines))
	}
	s.conn.Out.Add(int64(len(lines)))
	s.schedule()
	return true
}

// Assigned tells the client what has become its own, and what has not to be any more.
func (x *membership) Assigned(gained, lost []ident.Index) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.gone {
		return
	}
	for _, c := range []struct {
		op string
		of []ident.Index
	}{{"revoked", lost}, {"assigned", gained}} {
		if len(c.of) > 0 {
			s.pushLocked(wire.Open(nil, c.op).Str("sub", x.name).Raw("partitions", indexes(c.of)).Close())
		}
	}
	s.schedule()
}

// sentLocked notes that a turn takes what is in the outbox.
func (s *session) sentLocked() {
	for _, x := range s.members {
		if x.unsent {
			x.unsent = false
			x.share.Close()
			x.wake()
		}
	}
}

// deliveringLocked reports whether something may still be on its way to a member.
func (s *session) deliveringLocked() bool {
	for _, x := range s.members {
		select {
		case <-x.ended:
		default:
			return true
		}
	}
	return false
}
