package run

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func waited(t *testing.T, b Backoff) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(begun)
}

func TestRestartsBackOffAndForget(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
		if w := waited(t, b); w != 0 {
			t.Errorf("a first start waited %s", w)
		}
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if err := b.Failed(errors.New("fsync: input/output error")); err != nil {
				t.Fatal(err)
			}
			if w := waited(t, b); w != want*time.Second {
				t.Errorf("after failure %d: waited %s, want %ds", i+1, w, want)
			}
			if w := waited(t, b); w != 0 {
				t.Errorf("waited again, %s", w)
			}
		}
		time.Sleep(forgetAfter + time.Second)
		if err := b.Failed(errors.New("again")); err != nil {
			t.Fatal(err)
		}
		if w := waited(t, b); w != firstDelay {
			t.Errorf("an old failure still counts: waited %s", w)
		}
		if err := b.Failed(errors.New("again")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Clear(), b.Clear()); err != nil {
			t.Errorf("clear: %v", err)
		}
		if w := waited(t, b); w != 0 {
			t.Errorf("an orderly stop does not clear: waited %s", w)
		}
	})
}

func TestTheWaitIsBoundedWhateverTheClockAndTheMarkerSay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
		for name, tc := range map[string]struct {
			text string
			want time.Duration
		}{
			"from the future": {`{"count":1,"at":"2200-01-01T00:00:00Z"}`, firstDelay},
			"huge count":      {`{"count":9223372036854775807,"at":"2200-01-01T00:00:00Z"}`, longestDelay},
			"negative":        {`{"count":-3,"at":"2200-01-01T00:00:00Z"}`, 0},
			"garbage":         {"\x00\x01", 0},
			"empty":           {"", 0},
			"far too long":    {string(make([]byte, maxMarkerBytes+1)), 0},
		} {
			if err := os.WriteFile(filepath.Join(dir, markerName), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if w := waited(t, b); w != tc.want {
				t.Errorf("%s: waited %s, want %s", name, w, tc.want)
			}
		}
	})
}

func TestASignalCutsTheWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
		if err := b.Failed(errors.New("x")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAFolderThatCannotTakeTheMarkerSaysSo(t *testing.T) {
	b := Backoff{Dir: filepath.Join(t.TempDir(), "missing"), Logger: slog.New(slog.DiscardHandler)}
	if b.Failed(errors.New("x")) == nil {
		t.Error("no error")
	}
}

func TestNotifyTellsTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := errors.Join(Notify("", "READY=1"), Notify(path, "READY=1")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	if Notify(path+"-absent", "READY=1") == nil {
		t.Error("a missing socket is no error")
	}
}
