package guard

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

// issuer publishes keys and signs with them.
type issuer struct {
	mu      sync.Mutex
	keys    []ed25519.PrivateKey
	status  int           // of the answer
	slow    time.Duration // how long that takes
	fetches int
}

func newKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func (i *issuer) publish(status int, keys ...ed25519.PrivateKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys, i.status = keys, status
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	i.fetches++
	status, keys, slow := i.status, i.keys, i.slow
	i.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if status == 0 {
		return nil, errors.New("nobody is there")
	}
	var set []string
	for _, k := range keys {
		set = append(set, `{"kty":"OKP","crv":"Ed25519","x":"`+base64.RawURLEncoding.EncodeToString(k.Public().(ed25519.PublicKey))+`"}`)
	}
	body := io.NopCloser(strings.NewReader(`{"keys":[` + strings.Join(set, ",") + `]}`))
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: body, Request: r}, nil
}

func signedBy(k ed25519.PrivateKey, sub string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"EdDSA"}`)) + "." + b64(fmt.Appendf(nil, `{"sub":%q,"exp":%d}`, sub, time.Now().Add(time.Hour).Unix()))
	return text + "." + b64(ed25519.Sign(k, []byte(text)))
}

func withIssuer(t *testing.T, i *issuer, play func(g *Guard)) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{Verifier: &access.Verifier{Key: []byte(key)}, KeysURL: "https://id.example.com/keys"})
		g.published.client.Transport = i
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		play(g)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func reasonFor(g *Guard, token string) access.Reason {
	_, err := g.Token(token)
	return access.ReasonOf(err)
}

func TestKeysThatAreWithdrawnProveNothingAnyMore(t *testing.T) {
	one, two := newKey('1'), newKey('2')
	i := &issuer{status: 200, keys: []ed25519.PrivateKey{one}}
	withIssuer(t, i, func(g *Guard) {
		synctest.Wait()
		if err := g.NotReady(); err != nil {
			t.Fatal(err)
		}
		old := signedBy(one, "ann")
		for range 2 { // proven, and remembered
			if grant, err := g.Token(old); err != nil || grant.Principal != "ann" {
				t.Fatal(err)
			}
		}
		if _, err := g.Token(token(t, "bob", time.Hour)); err != nil {
			t.Errorf("the secret beside them: %v", err)
		}
		i.publish(200, two)
		time.Sleep(fetchEvery + time.Second)
		if r := reasonFor(g, old); r != access.Signature {
			t.Errorf("by a key that was withdrawn: %q", r)
		}
		if _, err := g.Token(signedBy(two, "ann")); err != nil {
			t.Error(err)
		}
	})
}

func TestATokenOfAFreshKeyWaitsForIt(t *testing.T) {
	one, two := newKey('1'), newKey('2')
	i := &issuer{status: 200, keys: []ed25519.PrivateKey{one}, slow: time.Second}
	withIssuer(t, i, func(g *Guard) {
		began := time.Now()
		if _, err := g.Token(signedBy(one, "ann")); err != nil || time.Since(began) != time.Second {
			t.Fatalf("while the first ones are on their way: %v after %s", err, time.Since(began))
		}
		i.publish(200, one, two)
		began = time.Now()
		if r := reasonFor(g, signedBy(two, "ann")); r != access.Signature || time.Since(began) != 0 {
			t.Errorf("just after a fetch: %q after %s", r, time.Since(began))
		}
		time.Sleep(fetchPause)
		began = time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := g.Token(signedBy(two, "ann")); err != nil || time.Since(began) != time.Second {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		}
		all.Wait()
		if n := i.count(); n != 2 {
			t.Errorf("%d fetches", n)
		}
		// Tokens that are made up make nobody fetch all the time.
		forged := newKey('3')
		for range 600 {
			if r := reasonFor(g, signedBy(forged, "ann")); r != access.Signature {
				t.Fatal(r)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.count() - 2; n > 100 {
			t.Errorf("%d fetches in more than a minute", n)
		}
	})
}

// Before the keys have come, what they would prove is neither good nor bad, however it is
// signed: the empty secret is everybody's.
func TestNobodyIsBelievedBeforeTheKeysHaveCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{Verifier: &access.Verifier{}, KeysURL: "https://id.example.com/keys"})
		forged := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "eve", "exp": time.Now().Add(time.Hour).Unix()})
		text, err := forged.SignedString([]byte{})
		if err != nil {
			t.Fatal(err)
		}
		if grant, err := g.Token(text); !fault.Is(err, fault.Draining) {
			t.Errorf("%v, %v", grant, err)
		}
	})
}

func TestKeysThatCannotBeFetchedLeaveThoseBefore(t *testing.T) {
	one := newKey('1')
	i := &issuer{}
	withIssuer(t, i, func(g *Guard) {
		synctest.Wait()
		if err := g.NotReady(); !fault.Is(err, fault.Draining) {
			t.Errorf("without keys: %v", err)
		}
		began := time.Now()
		if _, err := g.Token(signedBy(one, "ann")); !fault.Is(err, fault.Draining) || time.Since(began) > fetchTime+time.Second {
			t.Errorf("without keys: %v", err)
		}
		if r := reasonFor(g, "no token"); r != access.Malformed {
			t.Errorf("what is bad by any key: %q", r)
		}
		if _, err := g.Token(token(t, "bob", time.Hour)); err != nil {
			t.Errorf("the secret: %v", err)
		}
		i.publish(200, one)
		time.Sleep(fetchPause + time.Second)
		if _, err := g.Token(signedBy(one, "ann")); err != nil {
			t.Error(err)
		}
		for _, status := range []int{500, 302, 0} {
			i.publish(status)
			time.Sleep(fetchEvery)
			if err := g.NotReady(); err != nil {
				t.Errorf("%d: %v", status, err)
			}
			if _, err := g.Token(signedBy(one, "eve")); err != nil {
				t.Errorf("%d: %v", status, err)
			}
		}
		i.publish(200) // a set without a key is a mistake
		time.Sleep(fetchEvery)
		if _, err := g.Token(signedBy(one, "ann")); err != nil {
			t.Error(err)
		}
	})
}
