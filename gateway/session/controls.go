package session

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
		if b[0] == opPing {
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
