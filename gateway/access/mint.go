package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Claims are what a token is to say.
type Claims struct {
	Subject  string
	Issuer   string // "": none
	Audience string // "": none
	From     time.Time
	Until    time.Time
	Topics   map[Right][]string // patterns
	Admin    bool
}

// Mint signs a token. It refuses what Verify would not take.
func Mint(key []byte, c Claims) (string, error) {
	given := map[string]any{}
	for right, patterns := range c.Topics {
		if len(patterns) > 0 {
			given[right.String()] = patterns
		}
	}
	if c.Admin {
		given[adminName] = true
	}
	claim, err := json.Marshal(given)
	if err == nil {
		_, err = parseRights(claim, c.Subject)
	}
	if err != nil {
		return "", err
	}
	if err := checkSubject(c.Subject); err != nil {
		return "", fmt.Errorf("the subject %w", err)
	}
	all := jwt.MapClaims{"iat": c.From.Unix(), "exp": c.Until.Unix(), "tidewire": json.RawMessage(claim)}
	for name, value := range map[string]string{"sub": c.Subject, "iss": c.Issuer, "aud": c.Audience} {
		if value != "" {
			all[name] = value
		}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, all).SignedString(key)
}
