package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// maxSetKeys bounds the keys of a set: each is tried on a token of its algorithm.
const maxSetKeys = 64

// publishedKey is a key of a set as RFC 7517, 7518 and 8037 write it.
type publishedKey struct {
	Kind      string `json:"kty"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N, E      string
	X, Y      string
}

// KeySet reads the public keys of a JWKS document. Keys that prove nothing here, by
// what they are or by what they are for, are left out: an issuer may use them elsewhere.
// A set without any other is an error.
func KeySet(document []byte) (keys []crypto.PublicKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, errors.New("it is no JSON object with keys, as RFC 7517 has it")
	}
	if len(set.Keys) > maxSetKeys {
		return nil, fmt.Errorf("it has %d keys, more than %d", len(set.Keys), maxSetKeys)
	}
	for _, text := range set.Keys {
		var k publishedKey
		if json.Unmarshal(text, &k) != nil {
			continue
		}
		if key := k.public(); key != nil {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys is for signatures of RS256, ES256 or EdDSA", len(set.Keys))
	}
	return keys, nil
}

// public is the key, if it proves tokens; nil: it does not.
func (k publishedKey) public() crypto.PublicKey {
	if k.Use != "" && k.Use != "sig" {
		return nil
	}
	var key crypto.PublicKey
	switch k.Kind + " " + k.Curve {
	case "RSA ":
		n, e := number(k.N), number(k.E)
		if n == nil || e == nil || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
			return nil
		}
		key = &rsa.PublicKey{N: n, E: int(e.Int64())}
	case "EC P-256":
		x, y := decoded(k.X), decoded(k.Y)
		if len(x) != 32 || len(y) != 32 {
			return nil
		}
		point := append(append([]byte{4}, x...), y...) // uncompressed
		p, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		if err != nil {
			return nil // no point of the curve
		}
		key = p
	case "OKP Ed25519":
		x := decoded(k.X)
		if len(x) != ed25519.PublicKeySize {
			return nil
		}
		key = ed25519.PublicKey(x)
	}
	if name := AlgorithmOf(key); name == "" || k.Algorithm != "" && k.Algorithm != name {
		return nil
	}
	return key
}

func decoded(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func number(text string) *big.Int {
	b := decoded(text)
	if len(b) == 0 {
		return nil
	}
	return new(big.Int).SetBytes(b)
}
