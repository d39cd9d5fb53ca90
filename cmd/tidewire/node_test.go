package main

import (
	"bytes"
	"log/slog"
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
