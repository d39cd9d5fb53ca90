package boot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
)

// Key is a secret. It shows itself to nobody.
type Key []byte

func (Key) String() string   { return "********" }
func (Key) GoString() string { return "********" }

// WeakKeyBytes: a secret shorter than this can be guessed from a token, says
// RFC 7518 (section 3.2).
const WeakKeyBytes = 32

const maxKeyBytes = 64 << 10

func keyFile(c *Config, text string) (err error) {
	c.AuthKey, c.AuthPublic, c.AuthKeyExposed = nil, nil, false
	if text == "" {
		return nil
	}
	b, err := readKeyFile(text)
	if err != nil {
		return err
	}
	if isPEM(b) {
		c.AuthPublic, err = publicKeys(b)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	}
	c.AuthKey = b
	if info, err := os.Stat(text); err == nil {
		c.AuthKeyExposed = info.Mode()&othersRead != 0
	}
	return nil
}

// Asks reports whether callers have to prove who they are.
func (c *Config) Asks() bool { return c.AuthKey != nil || len(c.AuthPublic) > 0 || c.AuthJWKSURL != "" }

// keysURL takes an address whose answers nobody on the way can make up.
func keysURL(c *Config, text string) error {
	if c.AuthJWKSURL = text; text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q is no address such as https://id.example.com/.well-known/jwks.json", text)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("%q is clear text: whoever is on the way could publish keys of their own; take https, or http on this machine alone", text)
	}
	return nil
}

// othersRead is the right of users who neither own a file nor are of its group.
const othersRead = 0o004

// ReadKey reads the secret of tokens from a file.
func ReadKey(path string) (Key, error) {
	b, err := readKeyFile(path)
	if err == nil && isPEM(b) {
		return nil, fmt.Errorf("%s is a PEM file: its nodes take tokens that are signed with the private half of a key, by whoever has that; this needs the HS256 secret", path)
	}
	return b, err
}

// readKeyFile reads a file with a secret or keys. One line end after it is no part of
// it: an editor or a shell put it there.
func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("%s is empty: it holds the HS256 secret, for example of openssl rand -hex 32, or a public key in PEM", path)
	case len(b) > maxKeyBytes:
		return nil, fmt.Errorf("%s has more than %d bytes: it holds the HS256 secret, or public keys in PEM, and nothing else", path, maxKeyBytes)
	}
	return b, nil
}

// text takes anything.
func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		*field(c) = text
		return nil
	}
}

// checkAuth finds settings of tokens that would have no effect.
func (c *Config) checkAuth() (faults []error) {
	if c.Asks() {
		return nil
	}
	for _, s := range []struct{ name, value string }{{"auth_issuer", c.AuthIssuer}, {"auth_audience", c.AuthAudience}} {
		if s.value != "" {
			faults = append(faults, fmt.Errorf("%s: has no effect without auth_key_file or auth_jwks_url, which make callers need a token", s.name))
		}
	}
	return faults
}

// exposed is the error for a listener that others can reach though nobody asks
// them who they are.
func (c *Config) exposed(l listener) error {
	who := "this node authenticates nobody: give auth_key_file or auth_jwks_url, so that callers need a token, or "
	if l.name != "http" {
		who = "this version authenticates no other node there: "
	}
	return errors.New(l.name + ": " + l.bind + " can be reached from other machines, and " + who +
		"listen on 127.0.0.1 or [::1] (for example behind a proxy that checks who is calling), " +
		"or accept that anyone who reaches it may read and write by --insecure (TIDEWIRE_INSECURE=true, insecure: true)")
}
