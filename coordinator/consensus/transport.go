package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"tidewire/internal/ident"
)

// Dial opens a connection to an address; kind says what for. Everything between
// nodes goes through one such function, so that tests can cut single links.
type Dial func(ctx context.Context, kind, address string) (net.Conn, error)

// dialKind is what raft's connections are called.
const dialKind = "raft"

// stream carries raft over TCP. raft's own insists on an IP address; this one
// lets a node be known by its host name.
//
// Raft believes whoever speaks to it: one call with a high term ends a cluster
// of one for good, for it cannot vote above that term any more. So nobody is
// heard while there are no others to hear, and others must say of which cluster
// they are and whom they mean: see preamble.
type stream struct {
	net.Listener
	advertise string
	self      ident.NodeID
	cluster   func() ident.ClusterID // zero: not known yet
	locate    func(ident.NodeID) (string, bool)
	dial      Dial
	raft      atomic.Pointer[raft.Raft] // set once it runs
	unknown   atomic.Int64              // connections that have not said yet who they are
}

// maxUnknown bounds them: a flood of strangers holds no more files than these, and
// none for longer than preambleLimit.
const maxUnknown = 64

// listen opens the raft port. Without advertise the node is known by the
// address it listens on, or by its host name where that is every address.
func listen(cfg *Config) (*stream, error) {
	l, err := net.Listen("tcp", cfg.Bind)
	if err != nil {
		return nil, fmt.Errorf("listen for raft: %w", err)
	}
	advertise := cfg.Advertise
	if advertise == "" {
		advertise, err = reachable(l.Addr())
		if err != nil {
			l.Close() // the error of the address says more
			return nil, err
		}
	}
	return &stream{Listener: l, advertise: advertise, self: cfg.ID, cluster: cfg.Cluster, locate: cfg.Locate, dial: cfg.Dial}, nil
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
// is the only one, or does not know its cluster yet, every connection is closed
// unread. What it says first is read where the rest is, so that a slow caller keeps
// nobody else waiting.
func (s *stream) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if s.hears() && s.unknown.Load() < maxUnknown { // this loop alone adds
			s.unknown.Add(1)
			return &introduced{Conn: conn, to: s, done: sync.OnceFunc(func() { s.unknown.Add(-1) })}, nil
		}
		_ = conn.Close() // nothing was said on it
	}
}

// hears says whether there are others to hear: the configuration names them, or is
// still to come from the leader that takes this node in.
func (s *stream) hears() bool {
	r := s.raft.Load()
	if r == nil || s.cluster() == (ident.ClusterID{}) {
		return false
	}
	servers := r.GetConfiguration().Configuration().Servers
	return len(servers) != 1 || servers[0].ID != raft.ServerID(s.self.String())
}

// Addr is what others dial.
func (s *stream) Addr() net.Addr { return address(s.advertise) }

// ServerAddr finds where a coordinator is now: as gossip knows it, else as the
// configuration says. Its id goes with it, for the preamble.
func (s *stream) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	node, err := parseID(id)
	if err != nil {
		return "", err
	}
	if at, ok := s.locate(node); ok && at != "" {
		return target(id, at), nil
	}
	if r := s.raft.Load(); r != nil {
		for _, server := range r.GetConfiguration().Configuration().Servers {
			if server.ID == id {
				return target(id, string(server.Address)), nil
			}
		}
	}
	return target(id, ""), nil // dialling it says what is missing
}

func target(id raft.ServerID, address string) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + address)
}

var errNoAddress = errors.New("its address is not known")

// Dial takes what ServerAddr gave.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, at, _ := strings.Cut(string(to), "@")
	node, err := parseID(raft.ServerID(id))
	if err != nil {
		return nil, err
	}
	if at == "" {
		return nil, fmt.Errorf("dial coordinator %s: %w", id, errNoAddress)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.dial(ctx, dialKind, at)
	if err != nil {
		return nil, err
	}
	p := preamble{Cluster: s.cluster(), Source: s.self, Target: node}
	if err := p.send(conn, timeout); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
