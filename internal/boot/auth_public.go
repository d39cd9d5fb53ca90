package boot

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

func isPEM(b []byte) bool { return bytes.Contains(b, []byte("-----BEGIN ")) }

// publicKeys reads every key of a PEM file: several while an issuer goes from one to
// the next.
func publicKeys(b []byte) (keys []crypto.PublicKey, err error) {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		key, err := publicKey(block)
		if err != nil {
			return nil, fmt.Errorf("key %d of the file: %w", len(keys)+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || isPEM(b) {
		return nil, errors.New("no PEM, though it has a line that begins a block of it")
	}
	return keys, nil
}

func publicKey(block *pem.Block) (crypto.PublicKey, error) {
	switch kind := block.Type; {
	case strings.HasSuffix(kind, "PRIVATE KEY"):
		return nil, errors.New("it is private: a node needs the public half alone (openssl pkey -in FILE -pubout); keep this one where tokens are signed")
	case kind == "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case kind == "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case kind == "CERTIFICATE":
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	default:
		return nil, fmt.Errorf("%q is no PUBLIC KEY", kind)
	}
}
