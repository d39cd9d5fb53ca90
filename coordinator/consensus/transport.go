package consensus

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"
)

// stream carries raft over TCP. raft's own insists on an IP address; this one
// lets a node be known by its host name.
type stream struct {
	net.Listener
	advertise string
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

// Addr is what others dial.
func (s *stream) Addr() net.Addr { return address(s.advertise) }

func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(to), timeout)
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
