package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidewire/internal/boot"
	"tidewire/internal/fault"
)

func TestANodeWarnsOfASecretThatIsNone(t *testing.T) {
	long := boot.Key(strings.Repeat("k", boot.WeakKeyBytes))
	for _, c := range []struct {
		cfg  boot.Config
		want string // "": no warning
	}{
		{boot.Config{AuthKey: long}, ""},
		{boot.Config{AuthKey: long, AuthKeyExposed: true}, "chmod 600"},
		{boot.Config{AuthKey: boot.Key("short")}, "can be guessed"},
		{boot.Config{AuthPublic: []crypto.PublicKey{ed25519.PublicKey(long)}}, ""},
	} {
		var log bytes.Buffer
		n := &node{cfg: c.cfg, log: slog.New(slog.NewTextHandler(&log, nil))}
		if n.verifier() == nil {
			t.Error("no verifier")
		}
		if got := log.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%+v: %s", c.cfg, got)
		}
	}
}

func TestANodeDoesNotStartWithAKeyThatProvesNothing(t *testing.T) {
	k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code := execute([]string{"serve", "--auth-key-file", path}, process{out: io.Discard, err: &errs})
	if code != exitUsage || !strings.Contains(errs.String(), "auth_key_file: key 1 of the file proves no token") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestANodeSaysWhetherItStartsOrStops(t *testing.T) {
	n := &node{}
	if why := fault.As(n.notReady()[0]).Detail(); !strings.Contains(why, "is starting") {
		t.Error(why)
	}
	n.stopping.Store(true)
	if why := fault.As(n.notReady()[0]).Detail(); !strings.Contains(why, "is stopping") {
		t.Error(why)
	}
}
