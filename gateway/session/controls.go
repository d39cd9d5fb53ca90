package session

import (
	"context"
	"fmt"
	"time"

	"tidewire/gateway/reply"
)

const (
	masked     = 0x80 // in the second byte of a client's frame
	maskedHead = 6    // bytes of a short one's head
	maxControl = 125  // bytes of a control frame's payload
)

// controls takes in the pings and pongs that have come, as long as they come
// first and whole. The library would, and then wait for the message behind them
// with all of its stack. It is true when there is nothing else.
func (s *session) controls() bool {
	took := false
	for b := s.socket.ahead; len(b) >= maskedHead; b = s.socket.ahead {
		n := int(b[1]) - masked
		if b[0] != opPing && b[0] != opPong || n < 0 || n > maxControl || len(b) < maskedHead+n {
			return false
		}
		if b[0] == opPong {
			s.ponged((*life)(s), nil)
		} else {
			var payload [maxControl]byte
			for i := range n {
				payload[i] = b[maskedHead+i] ^ b[2+i%4]
			}
			s.pinged((*life)(s), payload[:n])
		}
		s.socket.skip(maskedHead + n)
		took = true
	}
	return took && !s.socket.pending()
}

// pinged answers a client's ping by the writer: the library would wait for the
// socket itself and give up the connection too early. Only the newest ping
// needs an answer.
func (s *session) pinged(_ context.Context, payload []byte) bool {
	if !s.controlled() {
		return false
	}
	s.mu.Lock()
	s.pong = append(make([]byte, 0, len(payload)), payload...)
	s.mu.Unlock()
	s.schedule()
	return false
}

func (s *session) ponged(context.Context, []byte) { s.controlled() }

// controlled counts a ping or a pong, and ends a connection that floods the node
// with them: nothing else bounds what needs no answer. It is false then.
func (s *session) controlled() bool {
	if s.signs++; s.signs < maxControls {
		return true
	}
	now := time.Now()
	if now.Sub(s.signsFrom) < time.Second {
		s.shut(reply.CloseLimit, fmt.Sprintf("%d pings and pongs in less than a second", maxControls))
		return false
	}
	s.signs, s.signsFrom = 0, now
	return true
}
