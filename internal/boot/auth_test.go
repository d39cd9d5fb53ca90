package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheKeyIsReadAndNeverShown(t *testing.T) {
	for text, want := range map[string]string{"hush": "hush", "hush\n": "hush", "hush\r\n": "hush", "hush\n\n": "hush\n", " hush ": " hush ", "\x00\xff": "\x00\xff"} {
		c, err := load(t, []string{"--auth-key-file", secretFile(t, text), "--auth-issuer", "us"}, []string{"TIDEWIRE_AUTH_AUDIENCE=here"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if string(c.AuthKey) != want || c.AuthIssuer != "us" || c.AuthAudience != "here" {
			t.Errorf("%q: %q", text, []byte(c.AuthKey))
		}
		for _, shown := range []string{fmt.Sprintf("%v %+v %#v %s", c, c, c.AuthKey, c.AuthKey), c.LogValue().String()} {
			if strings.Contains(shown, "hush") {
				t.Errorf("shown: %s", shown)
			}
		}
	}
	c, err := load(t, nil, nil, "")
	if err != nil || c.AuthKey != nil {
		t.Errorf("%v %v", c.AuthKey, err)
	}
}

func TestAKeyThatEverybodyCanReadIsNoticed(t *testing.T) {
	path := secretFile(t, "hush")
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if c, err := load(t, []string{"--auth-key-file", path}, nil, ""); err != nil || c.AuthKeyExposed != want {
			t.Errorf("%s: %v %v", mode, c.AuthKeyExposed, err)
		}
	}
}

func TestSettingsOfTokensThatCannotWorkAreRefused(t *testing.T) {
	key := secretFile(t, "hush")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such file":             {[]string{"--auth-key-file=/nonexistent/key"}, "/nonexistent/key"},
		"an empty file":            {[]string{"--auth-key-file", secretFile(t, "\n")}, "is empty"},
		"a large file":             {[]string{"--auth-key-file", secretFile(t, strings.Repeat("k", maxKeyBytes+1))}, "more than 65536 bytes"},
		"a public key":             {[]string{"--auth-key-file", secretFile(t, "-----BEGIN PUBLIC KEY-----\n")}, "PEM"},
		"an issuer without a key":  {[]string{"--auth-issuer=us"}, "auth_issuer: has no effect without auth_key_file or auth_jwks_url"},
		"an audience without one":  {[]string{"--auth-audience=us"}, "auth_audience: has no effect"},
		"keys in clear text":       {[]string{"--auth-jwks-url=http://id.example.com/keys"}, "is clear text"},
		"keys from a file":         {[]string{"--auth-jwks-url=file:///etc/keys"}, "is no address"},
		"keys from nowhere":        {[]string{"--auth-jwks-url=https:///keys"}, "is no address"},
		"keys from no host":        {[]string{"--auth-jwks-url=https://:443/keys"}, "is no address"},
		"keys with a password":     {[]string{"--auth-jwks-url=https://me:hush@id.example.com/keys"}, "is no address"},
		"rpc beyond loopback":      {[]string{"--rpc=192.0.2.1:7400", "--auth-key-file", key}, "authenticates no other node"},
		"http with nobody to dial": {[]string{"--raft=0.0.0.0:7401", "--auth-key-file", key}, "advertise_raft"},
	} {
		if _, err := load(t, c.args, nil, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, args := range [][]string{
		{"--auth-key-file", key},
		{"--auth-jwks-url=https://id.example.com/keys?tenant=us", "--auth-issuer=us"},
		{"--auth-jwks-url=http://[::1]:9000/keys", "--auth-key-file", key},
	} {
		if c, err := load(t, append(args, "--http=192.0.2.1:8080"), nil, ""); err != nil || !c.Asks() {
			t.Errorf("beyond loopback with %v: %v", args, err)
		}
	}
}
