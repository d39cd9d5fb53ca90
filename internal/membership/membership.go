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
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"tidewire/internal/ident"
)

// Peers keeps addresses of other nodes in the data folder, so that a node finds its
// cluster again when its seeds are gone.
type Peers interface {
	Load() []string
	Save([]string) error
}

// Config tunes gossip. A zero field means its default.
type Config struct {
	Self Node   // required: ID and Name; what else others are to know, as far as it is known yet
	Bind string // required: host:port for TCP and UDP; port 0 picks one for both
	// Advertise is what others dial; default: the address listened on. Where Bind
	// leaves the port open, the one that was picked counts here too.
	Advertise string
	Seeds     []string // gossip addresses to join, host:port
	Peers     Peers    // nil: nothing is remembered
	// Dial opens gossip's connections; nil: plain TCP. Datagram says where a packet
	// goes, and as which bytes; nil: as it is.
	Dial     func(ctx context.Context, kind, address string) (net.Conn, error)
	Datagram func(address string, packet []byte) (to string, bytes []byte)
	Logger   *slog.Logger
}

// Membership is this node's part in the gossip.
type Membership struct {
	cfg  Config
	list *memberlist.Memberlist
	addr string // of list, as others dial it
	view *view

	mu   sync.Mutex
	self Node
	meta []byte
}

const (
	// leaveLimit bounds how long a node waits for its leave to spread.
	leaveLimit = 2 * time.Second
	// exchangeLimit bounds an exchange of the whole state with another node.
	exchangeLimit = 3 * time.Second
)

// New does no I/O and starts nothing.
func New(cfg Config) *Membership {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Membership{cfg: cfg, self: cfg.Self}
	m.view = newView(m.Self, cfg.Logger)
	return m
}

// Self is what this node tells of itself.
func (m *Membership) Self() Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// View is what is known at the moment; never nil.
func (m *Membership) View() *View {
	v, _ := m.view.now()
	return v
}

// Next waits until there is a view newer than a version and gives the latest.
func (m *Membership) Next(ctx context.Context, after uint64) (*View, error) {
	return m.view.next(ctx, after)
}

// Find gives what is known of a node.
func (m *Membership) Find(id ident.NodeID) (Node, bool) {
	for _, n := range m.View().Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// Update changes what this node tells of itself, and tells it.
func (m *Membership) Update(change func(*Node)) error {
	m.mu.Lock()
	next := m.self
	change(&next)
	meta, err := next.encode()
	if err == nil {
		m.self, m.meta = next, meta
	}
	list := m.list
	m.mu.Unlock()
	if err != nil || list == nil {
		return err
	}
	m.view.rebuild() // who is of another cluster may be known only now
	// It would wait until the news has been sent often enough to reach everybody, and
	// fails only if that takes longer. It spreads without that.
	_ = list.UpdateNode(time.Millisecond)
	return nil
}

// NodeMeta and what follows is how memberlist asks; none of it waits.
func (m *Membership) NodeMeta(int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.meta
}

func (m *Membership) NotifyMsg([]byte)                {}
func (m *Membership) GetBroadcasts(int, int) [][]byte { return nil }
func (m *Membership) LocalState(bool) []byte          { return nil }
func (m *Membership) MergeRemoteState([]byte, bool)   {}

// Open opens the listener and joins nobody yet. Close or Run must follow.
func (m *Membership) Open(ctx context.Context) error {
	c, err := m.configuration(ctx)
	if err != nil {
		return err
	}
	t, err := listen(c, &m.cfg)
	if err != nil {
		return fmt.Errorf("open gossip on %s: %w", m.cfg.Bind, err)
	}
	c.Transport = t
	list, err := memberlist.Create(c)
	if err != nil {
		err = errors.Join(err, t.Shutdown())
		return fmt.Errorf("open gossip on %s: %w", m.cfg.Bind, err)
	}
	// It stays the same, and the library writes where it stands whenever it tells of this node.
	at := address(list.LocalNode())
	m.mu.Lock()
	m.list, m.addr = list, at
	m.mu.Unlock()
	m.cfg.Logger.Debug("gossip opened", "address", at)
	return nil
}

func (m *Membership) configuration(ctx context.Context) (*memberlist.Config, error) {
	if m.cfg.Self.ID == (ident.NodeID{}) || m.cfg.Self.Name == "" {
		return nil, errors.New("gossip config: Self needs an id and a name")
	}
	started := time.Now().UnixMilli()
	if err := m.Update(func(n *Node) { n.Started = started }); err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = fmt.Sprintf("%s@%d", m.cfg.Self.ID, started)
	c.Label = "tidewire" // whoever gossips under another one, or none, is not heard
	c.LogOutput = nil
	c.Logger = log.New(&lines{to: m.cfg.Logger}, "", 0)
	c.TCPTimeout = exchangeLimit
	c.DeadNodeReclaimTime = 30 * time.Second
	c.Delegate, c.Events, c.Alive, c.Merge = m, m.view, m.view, m.view
	var err error
	if c.BindAddr, c.BindPort, err = resolve(ctx, m.cfg.Bind); err != nil {
		return nil, fmt.Errorf("gossip address %q: %w", m.cfg.Bind, err)
	}
	// memberlist takes IP addresses only, and writes a port it picked back.
	c.AdvertisePort = c.BindPort
	switch ip := net.ParseIP(c.BindAddr); {
	case m.cfg.Advertise != "":
		if c.AdvertiseAddr, c.AdvertisePort, err = resolve(ctx, m.cfg.Advertise); err != nil {
			return nil, fmt.Errorf("advertised gossip address %q: %w", m.cfg.Advertise, err)
		}
	case ip.IsUnspecified():
		if c.AdvertiseAddr, err = ownAddress(ctx); err != nil {
			return nil, fmt.Errorf("gossip listens on every address and needs one to advertise: %w", err)
		}
	default:
		c.AdvertiseAddr = c.BindAddr
	}
	return c, nil
}

// Close leaves and closes the listener.
func (m *Membership) Close() error {
	m.mu.Lock()
	list := m.list
	m.list = nil
	m.mu.Unlock()
	if list == nil {
		return nil
	}
	// Whoever was to pass it on may be leaving as well: then the others find out.
	if err := list.Leave(leaveLimit); err != nil {
		m.cfg.Logger.Info("nobody has taken the word that this node leaves", "err", err)
	}
	return list.Shutdown()
}

// Addr is the address others dial, with the port that was picked.
func (m *Membership) Addr() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil {
		return m.cfg.Bind
	}
	return m.addr
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
