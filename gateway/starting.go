package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/httpapi"
	"tidewire/gateway/origin"
)

// StartingConfig of a Starting. A zero field means its default.
type StartingConfig struct {
	Listener *net.TCPListener // required; the gateway goes on with it
	// Why gives what the start waits for, as faults, at least one. Required.
	Why func() []error
	// The rest is as of the gateway.
	OpenFiles      int
	AllowedOrigins []string
	Advertised     string
	Logger         *slog.Logger
}

// Starting answers on a gateway's listener from the moment when that is bound until there
// is a gateway, which may take as long as other nodes are missing: that the node lives,
// and what it waits for. It is a server of its own, so that the gateway's has nothing to
// ask first: no connection goes over from one to the other, for each ends with its answer.
type Starting struct {
	lent   *lent
	server *http.Server
	open   sync.WaitGroup // connections that were accepted
	served chan struct{}  // closed once no connection is accepted any more
	accept net.Listener
}

// partingLimit bounds how long a connection that was accepted before the hand-over may
// take to send its request.
const partingLimit = 10 * time.Second

// NewStarting starts nothing.
func NewStarting(cfg StartingConfig) *Starting {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Starting{
		lent: &lent{TCPListener: cfg.Listener}, server: httpapi.NewStartingServer(cfg.Why, origin.New(cfg.AllowedOrigins, cfg.Advertised), cfg.Logger),
		served: make(chan struct{}),
	}
	bound := newCeiling(s.lent, cfg.OpenFiles, func() int { return 0 }, func() {})
	s.server.ConnState = func(c net.Conn, now http.ConnState) {
		bound.state(c, now)
		s.state(c, now)
	}
	s.accept = httpapi.Patient(bound)
	return s
}

// Run answers until ctx ends, or after HandOver until every connection has its answer.
func (s *Starting) Run(ctx context.Context) error {
	var group errgroup.Group
	answered := make(chan struct{})
	group.Go(func() error {
		err := s.server.Serve(s.accept)
		close(s.served)
		if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
			err = nil
		}
		s.open.Wait()
		close(answered)
		return err
	})
	group.Go(func() error {
		select {
		case <-s.served:
		case <-ctx.Done():
		}
		// Not by Shutdown, which leaves requests that come from then on without an answer.
		timer := time.NewTimer(partingLimit)
		defer timer.Stop()
		select {
		case <-answered:
		case <-timer.C:
		case <-ctx.Done():
		}
		return s.server.Close()
	})
	return group.Wait()
}

// state follows the connections.
func (s *Starting) state(_ net.Conn, now http.ConnState) {
	switch now {
	case http.StateNew:
		s.open.Add(1) // before Serve can return
	case http.StateClosed, http.StateHijacked:
		s.open.Done()
	}
}

// HandOver returns once no further connection is answered here: those that come wait in
// the listener for the gateway. Run must have been called, or be about to be.
func (s *Starting) HandOver() error {
	_ = s.lent.Close()
	<-s.served
	return s.lent.SetDeadline(time.Time{})
}

// lent is a listener that somebody else goes on with: to close it ends Accept alone, and
// whoever is on the way in stays there.
type lent struct {
	*net.TCPListener
	once   sync.Once
	closed atomic.Bool
}

func (l *lent) Accept() (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	conn, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed // only Close sets a deadline
	}
	return conn, err
}

// Close may come again after the listener has gone on to somebody else.
func (l *lent) Close() (err error) {
	l.once.Do(func() {
		l.closed.Store(true)
		if err = l.SetDeadline(time.Unix(1, 0)); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	})
	return err
}
