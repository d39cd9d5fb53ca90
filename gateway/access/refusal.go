package access

import "tidewire/internal/fault"

// Reason says why a caller is not known, in one word that programs, metrics and
// logs share.
type Reason string

// The reasons. Expired is the one that a client can mend by itself.
const (
	NoToken     Reason = "missing"
	Malformed   Reason = "malformed"
	Algorithm   Reason = "algorithm"
	Signature   Reason = "signature"
	TooLate     Reason = "expired"
	TooEarly    Reason = "not-yet-valid"
	WrongIssuer Reason = "issuer"
	NotForUs    Reason = "audience"
	BadClaims   Reason = "claims"
	BadTicket   Reason = "ticket"
)

// Reasons lists all of them.
func Reasons() []Reason {
	return []Reason{NoToken, Malformed, Algorithm, Signature, TooLate, TooEarly, WrongIssuer, NotForUs, BadClaims, BadTicket}
}

// Refuse is the error for a caller that is not known. What it says holds nothing
// of the token.
func Refuse(reason Reason, format string, args ...any) *fault.Error {
	return fault.New(fault.Unauthorized, format, args...).With("reason", string(reason))
}

// Missing is the error for a caller that says nothing of who it is.
func Missing() *fault.Error {
	return Refuse(NoToken, "a token is needed: send it as \"Authorization: Bearer …\"")
}

// Ended is the error for a grant that ended while it was in use.
func Ended() *fault.Error {
	return Refuse(TooLate, "the token has expired; come back with a fresh one")
}

// ReasonOf is the reason of a refusal; "": err is none.
func ReasonOf(err error) Reason {
	if !fault.Is(err, fault.Unauthorized) {
		return ""
	}
	text, _ := fault.As(err).Fields["reason"].(string)
	return Reason(text)
}
