//go:build !linux

package sock

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

var errNotHere = errors.New("the benchmark holds its connections with epoll, which only Linux has: run it there")

// Conn is there on Linux alone.
type Conn struct{}

// Dial says that it cannot.
func Dial(netip.AddrPort) (*Conn, error) { return nil, errNotHere }

// DialNarrow says that it cannot.
func DialNarrow(netip.AddrPort, int) (*Conn, error) { return nil, errNotHere }

// Fetch says that it cannot.
func (*Conn) Fetch(time.Time) ([]byte, error) { return nil, errNotHere }

// Rest is nothing.
func (*Conn) Rest() []byte { return nil }

// Use does nothing.
func (*Conn) Use(int) {}

// Write says that it cannot.
func (*Conn) Write([]byte) error { return errNotHere }

// Drop says that it cannot.
func (*Conn) Drop(int) (int, error) { return 0, errNotHere }

// Cut does nothing.
func (*Conn) Cut() {}

// Loop is there on Linux alone.
type Loop struct{}

// NewLoop says that it cannot.
func NewLoop(time.Duration) (*Loop, error) { return nil, errNotHere }

// Add says that it cannot.
func (*Loop) Add(*Conn, Handler) error { return errNotHere }

// Run says that it cannot.
func (*Loop) Run(context.Context) error { return errNotHere }

// Close does nothing.
func (*Loop) Close() {}
