package consensus

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// stream carries raft over TCP. raft's own insists on an IP address; this one
// lets a node be known by its host name.
//
// Raft believes whoever speaks to it: one call with a high term ends a cluster
// of one for good, for it cannot vote above that term any more. So nobody is
// heard while there are no others to hear.
type stream struct {
	net.Listener
	advertise string
	raft      atomic.Pointer[raft.Raft] // set once it runs
}

// listen opens the raft port. Without advertise the node is known by the
// address it listens on, or by its host name where that is every address.
func listen(bind, advertise string) (*stream, error) {
	l, err := net.Listen("tcp", bind)
	if err != nil {
		return nil, fmt.Errorf("listen for raft: %w", err)
	}
	if advertise == "" {
		advertise, err = reachable(l.Addr())
		if err != nil {
			l.Close() // the error of the address says more
			return nil, err
		}
	}
	return &stream{Listener: l, advertise: advertise}, nil
}

func reachable(a net.Addr) (string, error) {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String(), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("raft listens on every address and needs one to advertise: %w", err)
	}
	return net.JoinHostPort(host, fmt.Sprint(t.Port)), nil
}

// Accept gives the next connection of another coordinator. As long as this node
// is the only one, every connection is closed unread.
func (s *stream) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil || s.hasOthers() {
			return conn, err
		}
		_ = conn.Close() // nothing was said on it
	}
}

// hasOthers says whether the configuration names other coordinators. They are to
// be authenticated here once there can be any.
func (s *stream) hasOthers() bool {
	r := s.raft.Load()
	return r != nil && len(r.GetConfiguration().Configuration().Servers) > 1
}

// Addr is what others dial.
func (s *stream) Addr() net.Addr { return address(s.advertise) }

func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(to), timeout)
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
