package boot

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestPublicKeysAreReadInEveryFormThatTheyComeIn(t *testing.T) {
	r := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	e := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der := must[[]byte](t)
	rsaKey, ecKey, edKey := block("PUBLIC KEY", der(x509.MarshalPKIXPublicKey(r.Public()))), block("PUBLIC KEY", der(x509.MarshalPKIXPublicKey(e.Public()))), block("PUBLIC KEY", der(x509.MarshalPKIXPublicKey(public)))
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "us"}, NotAfter: time.Now().Add(time.Hour)}
	for name, file := range map[string]string{
		"RSA":           rsaKey,
		"RSA by PKCS#1": block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&r.PublicKey)),
		"P-256":         ecKey,
		"Ed25519":       edKey,
		"a certificate": block("CERTIFICATE", der(x509.CreateCertificate(rand.Reader, about, about, r.Public(), r))),
	} {
		cfg, err := load(t, []string{"--auth-key-file", secretFile(t, "a remark in front\n"+file)}, nil, "")
		if err != nil || cfg.AuthKey != nil || len(cfg.AuthPublic) != 1 || !cfg.Asks() {
			t.Errorf("%s: %+v %v", name, cfg, err)
		}
	}
	cfg, err := load(t, []string{"--http=192.0.2.1:8080", "--auth-issuer=us", "--auth-key-file", secretFile(t, rsaKey+ecKey+edKey)}, nil, "")
	if err != nil || len(cfg.AuthPublic) != 3 || !r.PublicKey.Equal(cfg.AuthPublic[0]) || !e.PublicKey.Equal(cfg.AuthPublic[1]) || !public.Equal(cfg.AuthPublic[2]) {
		t.Errorf("%v %v", cfg.AuthPublic, err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"a private key":         {block("PRIVATE KEY", der(x509.MarshalPKCS8PrivateKey(private))), "public half"},
		"a private key as well": {rsaKey + block("EC PRIVATE KEY", der(x509.MarshalECPrivateKey(e))), "key 2 of the file: it is private"},
		"another thing":         {block("DH PARAMETERS", []byte("x")), "is no PUBLIC KEY"},
		"no key in it":          {block("PUBLIC KEY", []byte("x")), "key 1"},
		"cut off":               {rsaKey[:len(rsaKey)/2], "no PEM"},
		"the second cut off":    {rsaKey + ecKey[:len(ecKey)/2], "no PEM"},
	} {
		path := secretFile(t, c.file)
		if _, err := load(t, []string{"--auth-key-file", path}, nil, ""); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadKey(secretFile(t, rsaKey)); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a public key as a secret: %v", err)
	}
}
