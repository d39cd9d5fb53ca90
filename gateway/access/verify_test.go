package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"testing"
	"time"

	"tidewire/internal/fault"
)

const key = "a secret of tests, longer than 32 bytes"

var now = time.Unix(1_800_000_000, 0)

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// sign makes a token by hand, so that this package's own library is not what it
// is held against.
func sign(header, claims, key string) string {
	return signWith(sha256.New, header, claims, key)
}

func signWith(h func() hash.Hash, header, claims, key string) string {
	text := b64(header) + "." + b64(claims)
	mac := hmac.New(h, []byte(key))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const hs256 = `{"alg":"HS256","typ":"JWT"}`

func until(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }

func TestTokens(t *testing.T) {
	good := sign(hs256, `{"sub":"ann","exp":`+until(time.Minute)+`,"iss":"us","aud":["them","here"]}`, key)
	for name, c := range map[string]struct {
		token  string
		reason Reason // "": taken
	}{
		"good":                  {good, ""},
		"the audience alone":    {sign(hs256, `{"exp":`+until(time.Second)+`,"iss":"us","aud":"here"}`, key), ""},
		"a fraction of seconds": {sign(hs256, `{"exp":`+until(0)+`.25,"iss":"us","aud":"here"}`, key), ""},
		"clocks a little apart": {sign(hs256, `{"exp":`+until(time.Hour)+`,"iat":`+until(5*time.Second)+`,"nbf":`+until(5*time.Second)+`,"iss":"us","aud":"here"}`, key), ""},

		"empty":                {"", Malformed},
		"no JWT":               {"abc", Malformed},
		"two parts":            {"a.b", Malformed},
		"four parts":           {good + ".x", Malformed},
		"padding":              {good + "=", Malformed},
		"a header of no JSON":  {sign(`{`, `{}`, key), Malformed},
		"claims of no object":  {sign(hs256, `[]`, key), Malformed},
		"claims of wrong type": {sign(hs256, `{"exp":"soon"}`, key), Malformed},
		"extensions":           {sign(`{"alg":"HS256","crit":["b64"],"b64":false}`, `{"exp":`+until(time.Minute)+`}`, key), Malformed},
		"too long":             {good + strings.Repeat("A", MaxTokenBytes), Malformed},

		"alg none":            {b64(`{"alg":"none"}`) + "." + b64(`{"exp":`+until(time.Minute)+`}`) + ".", Algorithm},
		"alg None, signed":    {sign(`{"alg":"None"}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"alg none, signed":    {sign(`{"alg":"none"}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"no alg":              {sign(`{}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"HS512":               {signWith(sha512.New, `{"alg":"HS512"}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"RS256 with our key":  {sign(`{"alg":"RS256"}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"an unknown alg":      {sign(`{"alg":"HS257"}`, `{"exp":`+until(time.Minute)+`}`, key), Algorithm},
		"another key":         {sign(hs256, `{"sub":"ann","exp":`+until(time.Minute)+`}`, "another"), Signature},
		"no signature":        {good[:strings.LastIndex(good, ".")+1], Signature},
		"half a signature":    {good[:len(good)-23], Signature},
		"a changed claim":     {strings.Replace(good, b64(`{"sub":"ann"`)[:10], b64(`{"sub":"bob"`)[:10], 1), ""},
		"expired":             {sign(hs256, `{"exp":`+until(-time.Second)+`,"iss":"us","aud":"here"}`, key), TooLate},
		"expired this moment": {sign(hs256, `{"exp":`+until(0)+`,"iss":"us","aud":"here"}`, key), TooLate},
		"expired and forged":  {sign(hs256, `{"exp":`+until(-time.Hour)+`}`, "another"), Signature},
		"not yet valid":       {sign(hs256, `{"exp":`+until(time.Hour)+`,"nbf":`+until(6*time.Second)+`,"iss":"us","aud":"here"}`, key), TooEarly},
		"of the future":       {sign(hs256, `{"exp":`+until(time.Hour)+`,"iat":`+until(time.Minute)+`,"iss":"us","aud":"here"}`, key), TooEarly},
		"without an end":      {sign(hs256, `{"iss":"us","aud":"here"}`, key), BadClaims},
		"an end beyond time":  {sign(hs256, `{"exp":1e300,"iss":"us","aud":"here"}`, key), BadClaims},
		"an end before time":  {sign(hs256, `{"exp":-1,"iss":"us","aud":"here"}`, key), BadClaims},
		"another issuer":      {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"them","aud":"here"}`, key), WrongIssuer},
		"no issuer":           {sign(hs256, `{"exp":`+until(time.Minute)+`,"aud":"here"}`, key), WrongIssuer},
		"another audience":    {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"there"}`, key), NotForUs},
		"no audience":         {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us"}`, key), NotForUs},
		"a long subject":      {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","sub":"`+strings.Repeat("s", 256)+`"}`, key), BadClaims},
		"a subject of lines":  {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","sub":"a\nb"}`, key), BadClaims},
		"rights of no object": {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","tidewire":[]}`, key), BadClaims},
		"a misspelt right":    {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","tidewire":{"publsh":["*"]}}`, key), BadClaims},
		"a right of no list":  {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","tidewire":{"publish":"*"}}`, key), BadClaims},
		"an empty pattern":    {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","tidewire":{"publish":[""]}}`, key), BadClaims},
		"a placeholder":       {sign(hs256, `{"exp":`+until(time.Minute)+`,"iss":"us","aud":"here","tidewire":{"publish":["{user}"]}}`, key), BadClaims},
	} {
		if name == "a changed claim" {
			parts := strings.Split(c.token, ".")
			parts[1] = b64(`{"sub":"bob","exp":` + until(time.Minute) + `,"iss":"us","aud":["here"]}`)
			c.token, c.reason = strings.Join(parts, "."), Signature
		}
		v := Verifier{Key: []byte(key), Issuer: "us", Audience: "here"}
		g, err := v.Verify(c.token, now)
		if got := ReasonOf(err); got != c.reason || (err == nil) != (c.reason == "") || (err == nil) != (g != nil) {
			t.Errorf("%s: %q, want %q (%v)", name, got, c.reason, err)
		}
		if err == nil {
			continue
		}
		if !fault.Is(err, fault.Unauthorized) {
			t.Errorf("%s: %v", name, err)
		}
		for part := range strings.SplitSeq(c.token, ".") {
			if len(part) > 4 && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error shows the token: %v", name, err)
			}
		}
	}
}

func TestAGrantHasWhatItsTokenSays(t *testing.T) {
	v := Verifier{Key: []byte(key)}
	g, err := v.Verify(sign(hs256, `{"sub":"ann","exp":`+until(time.Minute)+`,"tidewire":{"publish":["a"],"admin":false}}`, key), now)
	if err != nil || g.Principal != "ann" || !g.Expires.Equal(now.Add(time.Minute)) || !g.Asked() {
		t.Fatalf("%+v %v", g, err)
	}
	if g.Expired(now.Add(time.Minute-1)) || !g.Expired(now.Add(time.Minute)) {
		t.Error("the end is not exact")
	}
	if g, err = v.Verify(sign(hs256, `{"exp":`+until(time.Minute)+`}`, key), now); err != nil || g.Sees("a") || g.Admin() == nil {
		t.Errorf("a token without rights: %+v %v", g, err)
	}
}

func TestMintedTokensAreTaken(t *testing.T) {
	token, err := Mint([]byte(key), Claims{
		Subject: "ann", Issuer: "us", Audience: "here", From: now, Until: now.Add(time.Hour),
		Topics: map[Right][]string{Publish: {"orders.{sub}"}, Subscribe: {"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := Verifier{Key: []byte(key), Issuer: "us", Audience: "here"}
	g, err := v.Verify(token, now)
	if err != nil || g.May(Publish, "orders.ann") != nil || g.May(Publish, "orders.bob") == nil || g.May(Subscribe, "x") != nil || g.Admin() == nil {
		t.Fatalf("%+v %v", g, err)
	}
	for _, bad := range []Claims{
		{Until: now, Topics: map[Right][]string{Publish: {"{x}"}}},
		{Until: now, Subject: strings.Repeat("s", 256)},
	} {
		if _, err := Mint([]byte(key), bad); err == nil {
			t.Errorf("minted %+v", bad)
		}
	}
}

// FuzzVerify holds that nothing makes Verify panic, that nothing is taken without
// the key's signature, and that no error shows the token.
func FuzzVerify(f *testing.F) {
	f.Add(sign(hs256, `{"sub":"ann","exp":2000000000,"tidewire":{"publish":["*"],"admin":true}}`, key))
	f.Add(sign(`{"alg":"none"}`, `{"exp":2000000000}`, key))
	f.Add("a.b.c")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		v := Verifier{Key: []byte(key)}
		g, err := v.Verify(token, now)
		if err != nil {
			if ReasonOf(err) == "" {
				t.Fatalf("no reason: %v", err)
			}
			return
		}
		i := strings.LastIndex(token, ".")
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(token[:i]))
		if want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)); token[i+1:] != want {
			t.Fatalf("taken: %q", token)
		}
		if g.Expires.IsZero() || g.Expired(now) {
			t.Fatalf("%+v", g)
		}
	})
}

// FuzzClaims signs any claims: whatever the issuer writes is taken or refused,
// and what is taken has a true end.
func FuzzClaims(f *testing.F) {
	for _, s := range []string{`{"exp":2000000000,"tidewire":{"publish":["a*"],"admin":true}}`, `{"exp":1e12,"nbf":null,"tidewire":null}`, `{"exp":2e9,"sub":"{sub}*","tidewire":{"reply":["{sub}"]}}`, `{"aud":[1]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		v := Verifier{Key: []byte(key)}
		g, err := v.Verify(sign(hs256, claims, key), now)
		if err != nil {
			return
		}
		if !json.Valid([]byte(claims)) || g.Expired(now) || g.Expires.Year() > 9999 || len(g.Principal) > maxSubjectBytes {
			t.Fatalf("%q: %+v", claims, g)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	v := Verifier{Key: []byte(key), Issuer: "us", Audience: "here"}
	token, err := Mint(v.Key, Claims{Subject: "ann", Issuer: "us", Audience: "here", From: now, Until: now.Add(time.Hour), Topics: map[Right][]string{Publish: {"orders.*"}, Subscribe: {"*"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(token, now); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMay(b *testing.B) {
	r, err := parseRights([]byte(`{"publish":["news","orders.*","user.{sub}.*"]}`), "ann")
	if err != nil {
		b.Fatal(err)
	}
	g := &Grant{rights: r}
	b.ReportAllocs()
	for b.Loop() {
		if g.May(Publish, "user.ann.inbox") != nil {
			b.Fatal("no")
		}
	}
}
