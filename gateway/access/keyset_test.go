package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

func b64bytes(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// written is a key as a set writes it, with more members behind it.
func written(key crypto.PublicKey, more string) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf(`{"kty":"RSA","n":%q,"e":%q%s}`, b64bytes(k.N.Bytes()), b64bytes(big.NewInt(int64(k.E)).Bytes()), more)
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q%s}`, b64bytes(point[1:33]), b64bytes(point[33:]), more)
	default:
		return fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":%q%s}`, b64bytes(k.(ed25519.PublicKey)), more)
	}
}

func TestKeySets(t *testing.T) {
	var r, e, d crypto.PublicKey
	for _, p := range pairs(t) {
		switch k := p.private.Public(); p.algorithm {
		case "RS256":
			r = k
		case "ES256":
			e = k
		default:
			d = k
		}
	}
	set := func(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `],"more":1}` }
	keys, err := KeySet([]byte(set(
		written(r, `,"kid":"1","use":"sig","alg":"RS256","x5c":["AA=="]`), written(e, `,"key_ops":["verify"]`), written(d, `,"alg":"EdDSA"`),
		// What an issuer has for something else.
		written(r, `,"use":"enc"`), written(r, `,"alg":"RS512"`), written(e, `,"alg":"RS256"`), `{"kty":"oct","k":"AAAA"}`, `{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}`,
		`{"kty":"OKP","crv":"X25519","x":"AA"}`, `{"kty":"RSA","n":"AQAB","e":"AQAB"}`, `{"kty":"RSA","n":"","e":""}`, `{"kty":"RSA","n":"!","e":"AQAB"}`,
		`{"kty":"EC","crv":"P-256","x":"`+strings.Repeat("A", 43)+`","y":"`+strings.Repeat("A", 43)+`"}`, `{"kty":7}`, `7`, `null`,
	)))
	if err != nil || !reflect.DeepEqual(keys, []crypto.PublicKey{r, e, d}) {
		t.Errorf("%v %v", keys, err)
	}
	many := make([]string, maxSetKeys+1)
	for i := range many {
		many[i] = written(d, "")
	}
	for name, document := range map[string]string{
		"nothing": "", "a page": "<html>", "a list": "[]", "no keys": `{}`, "no key of ours": set(`{"kty":"oct","k":"AAAA"}`), "too many": set(many...),
		"an exponent of 1": set(fmt.Sprintf(`{"kty":"RSA","n":%q,"e":"AQ"}`, b64bytes(r.(*rsa.PublicKey).N.Bytes()))),
	} {
		if keys, err := KeySet([]byte(document)); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

// FuzzKeySet holds that what is taken proves something, and nothing else comes out.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + strings.Repeat("A", 43) + `"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"` + strings.Repeat("_", 342) + `","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, err := KeySet(document)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%v %v", keys, err)
		}
		for _, k := range keys {
			if AlgorithmOf(k) == "" {
				t.Fatalf("%v proves nothing", k)
			}
		}
	})
}
