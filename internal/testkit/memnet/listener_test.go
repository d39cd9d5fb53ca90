package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"tidewire/internal/testkit/memnet"
)

func TestBothEndsAreConnected(t *testing.T) {
	l := memnet.Listen()
	var server sync.WaitGroup
	server.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "welcome")
		_ = c.Close()
	})
	c, err := l.Dial(t.Context(), "tcp", "anywhere:1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "welcome" {
		t.Errorf("%q, %v", got, err)
	}
	server.Wait()
}

func TestNobodyWaitsForAListenerThatIsClosed(t *testing.T) {
	l := memnet.Listen()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Dial(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody accepts: %v", err)
	}
	_ = l.Close()
	_ = l.Close() // once is enough, twice does no harm
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := l.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
}
