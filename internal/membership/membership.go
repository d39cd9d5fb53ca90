package membership

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// Config tunes gossip. A zero field means its default.
type Config struct {
	Name string // required: the node's name, unique in the cluster
	Bind string // required: host:port for TCP and UDP; port 0 picks one for both
	// Advertise is what others dial; default: the address listened on. Where Bind
	// leaves the port open, the one that was picked counts here too.
	Advertise string
	Label     string // the cluster's id: packets of another cluster are dropped
	Logger    *slog.Logger
}

// Membership is this node's part in the gossip.
type Membership struct {
	cfg  Config
	list *memberlist.Memberlist
}

// leaveLimit bounds how long a node waits for its leave to spread.
const leaveLimit = 2 * time.Second

// New does no I/O and starts nothing.
func New(cfg Config) *Membership {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Membership{cfg: cfg}
}

// Open opens the listener. Nobody is heard on it in this version. Close or Run must follow.
func (m *Membership) Open(ctx context.Context) error {
	c := memberlist.DefaultLANConfig()
	c.Name = m.cfg.Name
	c.Label = m.cfg.Label
	c.LogOutput = nil
	c.Logger = log.New(&lines{to: m.cfg.Logger}, "", 0)
	c.DeadNodeReclaimTime = 30 * time.Second // a node may return under its name at another address
	var err error
	if c.BindAddr, c.BindPort, err = resolve(ctx, m.cfg.Bind); err != nil {
		return fmt.Errorf("gossip address %q: %w", m.cfg.Bind, err)
	}
	// memberlist takes IP addresses only, and writes a port it picked back.
	c.AdvertisePort = c.BindPort
	switch ip := net.ParseIP(c.BindAddr); {
	case m.cfg.Advertise != "":
		if c.AdvertiseAddr, c.AdvertisePort, err = resolve(ctx, m.cfg.Advertise); err != nil {
			return fmt.Errorf("advertised gossip address %q: %w", m.cfg.Advertise, err)
		}
	case ip.IsUnspecified():
		if c.AdvertiseAddr, err = ownAddress(ctx); err != nil {
			return fmt.Errorf("gossip listens on every address and needs one to advertise: %w", err)
		}
	default:
		c.AdvertiseAddr = c.BindAddr
	}
	t, err := transport(c)
	if err != nil {
		return fmt.Errorf("open gossip on %s: %w", m.cfg.Bind, err)
	}
	c.Transport = t
	if m.list, err = memberlist.Create(c); err != nil {
		err = errors.Join(err, t.Shutdown())
		return fmt.Errorf("open gossip on %s: %w", m.cfg.Bind, err)
	}
	m.cfg.Logger.Debug("gossip opened", "address", m.Addr())
	return nil
}

// Run gossips until ctx ends, then tells the others that this node leaves.
func (m *Membership) Run(ctx context.Context) error {
	<-ctx.Done()
	return m.Close()
}

// Close leaves and closes the listener.
func (m *Membership) Close() error {
	if m.list == nil {
		return nil
	}
	list := m.list
	m.list = nil
	var err error
	if e := list.Leave(leaveLimit); e != nil {
		err = fmt.Errorf("leave gossip: %w", e)
	}
	return errors.Join(err, list.Shutdown())
}

// Addr is the address others dial, with the port that was picked.
func (m *Membership) Addr() string {
	if m.list == nil {
		return m.cfg.Bind
	}
	n := m.list.LocalNode()
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// resolve splits host:port and gives the host's IP address.
func resolve(ctx context.Context, hostport string) (string, int, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("a port is 0 to 65535, not %q", portText)
	}
	if host == "" {
		return net.IPv4zero.String(), int(port), nil
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.String(), int(port), nil
	}
	ip, err := lookup(ctx, host)
	return ip, int(port), err
}

func ownAddress(ctx context.Context) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return lookup(ctx, host)
}

func lookup(ctx context.Context, host string) (string, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			return a.String(), nil
		}
	}
	return addrs[0].Unmap().String(), nil
}
