package access

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/internal/fault"
)

const (
	// MaxTokenBytes bounds a token before anything looks at it.
	MaxTokenBytes = 16 << 10
	// maxSubjectBytes bounds a principal: it is kept in the log with each
	// Idempotency-Key.
	maxSubjectBytes = 255
	// leeway is what the issuer's clock may be ahead. A token's end has none: it
	// ends connections, and that is exact.
	leeway = 5 * time.Second
	// lastSecond is the end of the year 9999, the last that RFC 3339 can write.
	lastSecond = 253402300799
)

// Verifier knows the keys and what tokens must say. Each algorithm has keys of its
// own, so that no token can have one taken for another's.
type Verifier struct {
	Key      []byte             // the secret of HS256; nil: that is not taken
	Public   []crypto.PublicKey // of RS256, ES256 and EdDSA, which they fit by their type
	Issuer   string             // "": any
	Audience string             // "": any
}

// Verify says who bears a token at a time, and what they may do. Its errors are
// Unauthorized with a Reason.
func (v *Verifier) Verify(token string, now time.Time) (*Grant, error) {
	if token == "" {
		return nil, Refuse(Malformed, "the token is empty")
	}
	if len(token) > MaxTokenBytes {
		return nil, Refuse(Malformed, "the token is longer than %d bytes", MaxTokenBytes)
	}
	c, err := v.prove(token)
	if err != nil {
		return nil, err
	}
	if err := v.checkTimes(c, now); err != nil {
		return nil, err
	}
	if v.Issuer != "" && c.Issuer != v.Issuer {
		return nil, Refuse(WrongIssuer, "the token's issuer (claim \"iss\") is not the one this node trusts (auth_issuer)")
	}
	if v.Audience != "" && !slices.Contains(c.Audience, v.Audience) {
		return nil, Refuse(NotForUs, "the token is for another audience (claim \"aud\") than this node's (auth_audience)")
	}
	if err := checkSubject(c.Subject); err != nil {
		return nil, Refuse(BadClaims, "claim \"sub\" %w", err)
	}
	g := &Grant{Principal: c.Subject}
	g.Expires, _ = instant(c.Expires) // checkTimes has read it
	if len(c.Rights) == 0 {
		return g, nil // known, and without any right
	}
	if g.rights, err = parseRights(c.Rights, c.Subject); err != nil {
		return nil, Refuse(BadClaims, "claim \"tidewire\": %s", fault.As(err).Detail())
	}
	return g, nil
}

// claims are what a token says. The embedded ones are there for the library
// alone, which does not check them: each name below hides its own.
type claims struct {
	jwt.RegisteredClaims
	Subject   string           `json:"sub"`
	Issuer    string           `json:"iss"`
	Audience  jwt.ClaimStrings `json:"aud"`
	Expires   *float64         `json:"exp"`
	NotBefore *float64         `json:"nbf"`
	IssuedAt  *float64         `json:"iat"`
	Rights    json.RawMessage  `json:"tidewire"`
}

// prove checks form, algorithm and signature.
func (v *Verifier) prove(token string) (*claims, error) {
	algorithms := v.algorithms()
	parser := jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	var c claims
	t, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if _, extended := t.Header["crit"]; extended {
			return nil, errExtended
		}
		return v.keys(t.Method.Alg()), nil
	})
	switch {
	case err == nil:
		return &c, nil
	case errors.Is(err, errExtended):
		return nil, Refuse(Malformed, "the token's header has \"crit\": this node knows no extension of JWT")
	case errors.Is(err, jwt.ErrTokenMalformed):
		return nil, Refuse(Malformed, "the token is no JWT: three parts of base64url with dots between them, the first two JSON objects")
	case len(algorithms) == 0:
		return nil, Refuse(Algorithm, "this node has no key yet that a token could be signed with")
	case t == nil || t.Method == nil || !slices.Contains(algorithms, t.Method.Alg()):
		return nil, Refuse(Algorithm, "the token is not signed with %s, which this node has a key for, and nothing else is taken", strings.Join(algorithms, " or "))
	}
	return nil, Refuse(Signature, "the token's signature does not fit this node's key")
}

var errExtended = errors.New("crit")

func (v *Verifier) checkTimes(c *claims, now time.Time) error {
	if c.Expires == nil {
		return Refuse(BadClaims, "the token has no end: claim \"exp\" is needed")
	}
	for _, t := range []struct {
		name  string
		value *float64
		bad   func(time.Time) error
	}{
		{"exp", c.Expires, func(t time.Time) error {
			if !now.Before(t) {
				return Refuse(TooLate, "the token has expired (claim \"exp\"); come back with a fresh one")
			}
			return nil
		}},
		{"nbf", c.NotBefore, func(t time.Time) error {
			if now.Add(leeway).Before(t) {
				return Refuse(TooEarly, "the token is not valid yet (claim \"nbf\")")
			}
			return nil
		}},
		{"iat", c.IssuedAt, func(t time.Time) error {
			if now.Add(leeway).Before(t) {
				return Refuse(TooEarly, "the token was issued in the future (claim \"iat\"): the clocks of its issuer and of this node differ")
			}
			return nil
		}},
	} {
		if t.value == nil {
			continue
		}
		at, ok := instant(t.value)
		if !ok {
			return Refuse(BadClaims, "claim %q is no time in seconds since 1970", t.name)
		}
		if err := t.bad(at); err != nil {
			return err
		}
	}
	return nil
}

// instant is a time in seconds since 1970; false: there is no such time.
func instant(seconds *float64) (time.Time, bool) {
	if s := *seconds; s >= 0 && s <= lastSecond {
		whole := int64(s)
		return time.Unix(whole, int64((s-float64(whole))*1e9)), true
	}
	return time.Time{}, false
}

func checkSubject(s string) error {
	switch {
	case len(s) > maxSubjectBytes:
		return fmt.Errorf("is longer than %d bytes", maxSubjectBytes)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("has characters that cannot be shown")
	}
	return nil
}
