package reply

import "tidewire/internal/wire"

// Close codes of a WebSocket. 4000-4499: come back. 4500-4999: do not.
const (
	CloseNormal       = 1000
	CloseGoingAway    = 1001
	CloseTooBig       = 1009
	CloseRestart      = 1012
	CloseTryLater     = 1013
	CloseSlowConsumer = 4001
	CloseSilent       = 4002
	CloseExpired      = 4003
	CloseUnauthorized = 4501
	CloseProtocol     = 4502
	CloseLimit        = 4503
)

// MaxReasonBytes bounds the reason of a close frame.
const MaxReasonBytes = 123

// Reason cuts a reason to what a close frame can carry.
func Reason(s string) string {
	if len(s) <= MaxReasonBytes {
		return s
	}
	cut := MaxReasonBytes
	for cut > 0 && s[cut]&0xC0 == 0x80 { // never inside a rune
		cut--
	}
	return s[:cut]
}

// Closing is the push before the server ends a connection.
func Closing(reason, retryAfter string) []byte {
	return wire.Open(nil, "closing").Str("reason", reason).Str("retry_after", retryAfter).Close()
}
