package sock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Handler is one connection's owner. A loop calls it from one goroutine.
type Handler interface {
	// Receive gets all that has arrived and is not used up, and returns how much
	// it has used; the rest comes again with more behind it. An error cuts the
	// connection and is given to Ended.
	Receive(b []byte) (used int, err error)
	// Ended says that the connection is over, unless Cut ended it. io.EOF: the
	// server closed it.
	Ended(err error)
}

// ErrCut is the answer of a connection that was cut.
var ErrCut = errors.New("the connection was cut")

// dialTimeout bounds the connecting; a server that accepts slowly is waited for.
const dialTimeout = 30 * time.Second

// Resolve finds the address of host:port once, so that ten thousand dials ask
// nobody.
func Resolve(ctx context.Context, hostport string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, ip := range all { // what most servers listen on
		if ip.Unmap().Is4() {
			return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
		}
	}
	if len(all) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s has no address", host)
	}
	return netip.AddrPortFrom(all[0], uint16(n)), nil
}
