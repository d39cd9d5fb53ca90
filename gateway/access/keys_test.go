package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// signBy makes a token with the private half of a key, by hand.
func signBy(t *testing.T, key crypto.Signer, header, claims string) string {
	t.Helper()
	text := b64(header) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch k := key.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, k, sum[:])
		size := (k.Curve.Params().BitSize + 7) / 8
		signature, err = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), failed
	case ed25519.PrivateKey:
		signature = ed25519.Sign(k, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

type pair struct {
	algorithm string
	private   crypto.Signer
}

func pairs(t *testing.T) (all []pair) {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, leastRSABits)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return []pair{{"RS256", r}, {"ES256", e}, {"EdDSA", d}}
}

// Each key proves tokens of its own algorithm, whichever others there are, and no
// header makes it prove those of another.
func TestPublicKeysProveTheirOwnAlgorithm(t *testing.T) {
	body := `{"sub":"ann","exp":` + until(time.Minute) + `}`
	mine, others := pairs(t), pairs(t)
	var all, strange []crypto.PublicKey
	for i := range mine {
		all, strange = append(all, mine[i].private.Public()), append(strange, others[i].private.Public())
	}
	for i, p := range mine {
		token := signBy(t, p.private, `{"alg":"`+p.algorithm+`"}`, body)
		for name, c := range map[string]struct {
			v    Verifier
			want Reason
		}{
			"its key":                {Verifier{Public: all[i : i+1]}, ""},
			"all keys":               {Verifier{Public: all}, ""},
			"the key before":         {Verifier{Public: append(strange[i:i+1:i+1], all[i])}, ""},
			"beside a secret":        {Verifier{Key: []byte(key), Public: all}, ""},
			"another's key":          {Verifier{Public: strange}, Signature},
			"another algorithm's":    {Verifier{Public: all[(i+1)%3 : (i+1)%3+1]}, Algorithm},
			"a secret":               {Verifier{Key: []byte(key)}, Algorithm},
			"no key at all":          {Verifier{}, Algorithm},
			"a key that proves none": {Verifier{Public: []crypto.PublicKey{"?"}}, Algorithm},
		} {
			g, err := c.v.Verify(token, now)
			if got := ReasonOf(err); got != c.want || (err == nil) != (g != nil && g.Principal == "ann") {
				t.Errorf("%s by %s: %q, want %q (%v)", p.algorithm, name, got, c.want, err)
			}
		}
		// What everybody knows is no secret: a public key as it stands in its file.
		der, err := x509.MarshalPKIXPublicKey(all[i])
		if err != nil {
			t.Fatal(err)
		}
		file := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		for _, secret := range []string{file, string(der), ""} {
			v := Verifier{Public: all}
			if _, err := v.Verify(sign(hs256, body, secret), now); ReasonOf(err) != Algorithm {
				t.Errorf("HS256 with the public key of %s: %v", p.algorithm, err)
			}
		}
		other := mine[(i+1)%3].algorithm
		v := Verifier{Public: all}
		if _, err := v.Verify(signBy(t, p.private, `{"alg":"`+other+`"}`, body), now); ReasonOf(err) != Signature {
			t.Errorf("%s that calls itself %s: %v", p.algorithm, other, err)
		}
		for _, near := range map[string][]string{"RS256": {"RS384", "PS256"}, "ES256": {"ES384"}, "EdDSA": {"Ed25519"}}[p.algorithm] {
			if _, err := v.Verify(signBy(t, p.private, `{"alg":"`+near+`"}`, body), now); ReasonOf(err) != Algorithm {
				t.Errorf("%s that calls itself %s: %v", p.algorithm, near, err)
			}
		}
	}
}

// Where every key is yet to come, nobody is believed: not even whoever signs with nothing,
// as everybody can.
func TestNobodyIsBelievedWithoutAKey(t *testing.T) {
	body := `{"sub":"ann","exp":` + until(time.Minute) + `}`
	for name, v := range map[string]Verifier{"no key": {}, "an empty secret": {Key: []byte{}}, "a key that proves none": {Public: []crypto.PublicKey{"?"}}} {
		for _, header := range []string{hs256, `{"alg":"none"}`} {
			signed := sign(header, body, "")
			bare := signed[:strings.LastIndexByte(signed, '.')+1]
			for _, token := range []string{signed, bare} {
				if _, err := v.Verify(token, now); ReasonOf(err) != Algorithm {
					t.Errorf("%s, %s: %v", name, token, err)
				}
			}
		}
	}
}

func TestKeysThatAreTooWeakOrTooLongProveNothing(t *testing.T) {
	small := &rsa.PublicKey{N: pairs(t)[0].private.Public().(*rsa.PublicKey).N, E: 65537}
	small.N.Rsh(small.N, 1)
	long := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), mostRSABits, 1), E: 65537}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.PublicKey{"RSA of 2047 bits": small, "RSA of 16385 bits": long, "P-384": curve.Public(), "nothing": nil} {
		if got := AlgorithmOf(key); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
