package e2e_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// jwtBy makes a token as jwt does, signed with the private half of a key.
func jwtBy(t *testing.T, private crypto.Signer, algorithm string, c claims) string {
	t.Helper()
	text := strings.TrimSuffix(jwt(`{"alg":"`+algorithm+`","typ":"JWT"}`, c, ""), ".")
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch k := private.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, k, sum[:])
		signature, err = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), failed
	case ed25519.PrivateKey:
		signature = ed25519.Sign(k, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestTokensOfPublicKeys shows tokens of each algorithm to a node that knows the public
// halves of their keys, on every transport.
func TestTokensOfPublicKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]crypto.Signer{"RS256": rsaKey, "ES256": ecKey, "EdDSA": edKey}
	var file []byte
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	g := &guarded{keyFile: filepath.Join(t.TempDir(), "keys.pem")}
	if err := os.WriteFile(g.keyFile, file, 0o644); err != nil {
		t.Fatal(err)
	}
	g.Node = harness.Start(t, harness.Options{Args: []string{"--auth-key-file", g.keyFile, "--auth-audience", "tests", "--auth-issuer", "us"}})
	g.api = client.New(g.URL)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	root := jwtBy(t, rsaKey, "RS256", claims{"tidewire": map[string]any{"admin": true}})
	g.api.Must(t, 201, "POST", "/topics/", jsonType, `{"name":"orders"}`, "Authorization", "Bearer "+root)
	for algorithm, k := range keys {
		token := jwtBy(t, k, algorithm, claims{"sub": "ann", "tidewire": may("orders", "orders")})
		g.api.Must(t, 201, "POST", "/topics/orders", jsonType, `1`, "Authorization", "Bearer "+token)
		s, err := g.stream(ctx, "/topics/orders/events", token)
		if err != nil {
			t.Fatalf("%s, sse: %v", algorithm, err)
		}
		s.Close()
		w, err := client.UpgradeWS(ctx, g.Addr, "", nil, "bearer."+token)
		if err != nil {
			t.Fatalf("%s, websocket: %v", algorithm, err)
		}
		if f, err := w.Next(ctx); err != nil || f.Op != "welcome" {
			t.Errorf("%s, websocket: %s %v", algorithm, f.Raw, err)
		}
		w.Drop()
	}
	everything := claims{"tidewire": map[string]any{"admin": true}}
	for name, c := range map[string]struct{ token, reason string }{
		"the key file as a secret":     {jwt(hs256, everything, string(file)), "algorithm"},
		"one key under another's name": {jwtBy(t, edKey, "ES256", everything), "signature"},
		"alg none":                     {jwt(`{"alg":"none"}`, everything, ""), "algorithm"},
	} {
		for transport, p := range g.refusals(t, c.token) {
			if p.Status != 401 || p.Code != "unauthorized" || p.Reason != c.reason {
				t.Errorf("%s, %s: %+v, want reason %q", name, transport, p, c.reason)
			}
		}
	}
	if log := g.Log(); strings.Contains(log, "chmod") || strings.Contains(log, "guessed") {
		t.Error("a warning of a secret, where there is none")
	}
}

// keySet is what an issuer publishes of keys of P-256.
func keySet(t *testing.T, keys ...*ecdsa.PrivateKey) []byte {
	t.Helper()
	set := []map[string]string{}
	for _, k := range keys {
		point, err := k.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, map[string]string{
			"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
			"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
		})
	}
	b, err := json.Marshal(map[string]any{"keys": set})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKeysByURL starts a node before its issuer publishes anything, and has that go from
// one key to the next.
func TestKeysByURL(t *testing.T) {
	t.Parallel()
	var set atomic.Pointer[[]byte]
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if b := set.Load(); b != nil {
			_, _ = w.Write(*b)
			return
		}
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer issuer.Close()
	one, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	two, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := harness.Start(t, harness.Options{Args: []string{"--auth-jwks-url", issuer.URL + "/keys", "--auth-audience", "tests", "--auth-issuer", "us"}})
	api := client.New(n.URL)
	root := claims{"sub": "root", "tidewire": map[string]any{"admin": true}}
	first := bearer(jwtBy(t, one, "ES256", root))

	// Nobody can say yet whether a token is good, so nobody says that it is not.
	ans := api.Must(t, 503, "GET", "/topics/", "", "", "Authorization", first.Get("Authorization"))
	if p, err := ans.Problem(); err != nil || p.Code != "draining" || ans.Header.Get("Retry-After") == "" {
		t.Errorf("%s %v", ans.Body, err)
	}
	if ans := api.Must(t, 503, "GET", "/readyz", "", ""); !strings.Contains(ans.Body, "auth_jwks_url") {
		t.Errorf("%s", ans.Body)
	}
	api.Must(t, 401, "GET", "/topics/", "", "")

	publish := func(keys ...*ecdsa.PrivateKey) { b := keySet(t, keys...); set.Store(&b) }
	publish(one)
	harness.Await(t, patience, "the first key counts", func() bool {
		ans, err := api.Do(ctx, "GET", "/topics/", "", "", "Authorization", first.Get("Authorization"))
		return err == nil && ans.Status == 200
	})
	api.Must(t, 200, "GET", "/readyz", "", "")
	w, err := client.UpgradeWS(ctx, n.Addr, "", first)
	if err != nil {
		t.Fatal(err)
	}
	w.Drop()

	publish(one, two)
	second := bearer(jwtBy(t, two, "ES256", root))
	harness.Await(t, patience, "the second key counts", func() bool {
		ans, err := api.Do(ctx, "GET", "/topics/", "", "", "Authorization", second.Get("Authorization"))
		return err == nil && ans.Status == 200
	})
	api.Must(t, 200, "GET", "/topics/", "", "", "Authorization", first.Get("Authorization"))
}
