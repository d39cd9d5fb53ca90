package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// leastRSABits is what RFC 7518 (section 3.3) wants of a key of RS256.
	leastRSABits = 2048
	// mostRSABits bounds what a signature takes to be checked: that grows with the square of
	// it, and a published key may be as long as the set it is in.
	mostRSABits = 16384
)

// AlgorithmOf is what a public key proves; "": nothing that is taken here.
func AlgorithmOf(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits >= leastRSABits && bits <= mostRSABits {
			return jwt.SigningMethodRS256.Alg()
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jwt.SigningMethodES256.Alg()
		}
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA.Alg()
	}
	return ""
}

// algorithms are those that there is a key for. It is never nil: the library takes nil
// for any.
func (v *Verifier) algorithms() []string {
	names := []string{}
	if len(v.Key) > 0 {
		names = append(names, jwt.SigningMethodHS256.Alg())
	}
	for _, k := range v.Public {
		if name := AlgorithmOf(k); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// keys are those of one algorithm: several while an issuer goes from one to the next. An
// empty secret is none: everybody has it.
func (v *Verifier) keys(algorithm string) (set jwt.VerificationKeySet) {
	if algorithm == jwt.SigningMethodHS256.Alg() && len(v.Key) > 0 {
		set.Keys = append(set.Keys, v.Key)
	}
	for _, k := range v.Public {
		if AlgorithmOf(k) == algorithm {
			set.Keys = append(set.Keys, k)
		}
	}
	return set
}
