package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
)

// AllRoles are those of a node that does everything.
const AllRoles = "gateway,broker,coordinator"

// ClusterOptions say what a cluster is made of.
type ClusterOptions struct {
	Roles []string // one entry a node; nil: three nodes that do everything
	Dirs  []string // data folders, by node; a missing or empty one: the test's own
	Args  []string // further flags of every node
	Links bool     // the test has the connections between the nodes in its hands
	Tags  []string // further build tags
}

// Member is one node of a cluster.
type Member struct {
	*Node
	Name  string // n1, n2, …: also that under which the cluster knows it
	Roles []string
}

// Has reports whether the node has a role.
func (m *Member) Has(role string) bool { return slices.Contains(m.Roles, role) }

// Cluster is several nodes that form one.
type Cluster struct {
	t       testing.TB
	opts    ClusterOptions
	founds  int // coordinators that found it
	Members []*Member
	Links   *Links // nil if they are in nobody's hands
}

// StartCluster makes nodes from empty folders, runs them and waits until all of
// them are ready.
func StartCluster(t testing.TB, opts ClusterOptions) *Cluster {
	t.Helper()
	c := NewCluster(t, opts)
	c.Form()
	return c
}

// NewCluster prepares the nodes without running them.
func NewCluster(t testing.TB, opts ClusterOptions) *Cluster {
	t.Helper()
	if opts.Roles == nil {
		opts.Roles = []string{AllRoles, AllRoles, AllRoles}
	}
	c := &Cluster{t: t, opts: opts}
	if opts.Links {
		c.Links = NewLinks(t)
	}
	for _, roles := range opts.Roles {
		if m := c.prepare(roles); m.Has("coordinator") {
			c.founds++
		}
	}
	return c
}

func (c *Cluster) prepare(roles string) *Member {
	c.t.Helper()
	i := len(c.Members)
	m := &Member{Name: "n" + strconv.Itoa(i+1), Roles: strings.Split(roles, ",")}
	dir := ""
	if i < len(c.opts.Dirs) {
		dir = c.opts.Dirs[i]
	}
	if dir == "" {
		dir = filepath.Join(c.t.TempDir(), m.Name)
	}
	o := Options{
		Dir: dir, Fixed: true, Tags: c.opts.Tags, Args: append([]string{"--name", m.Name, "--roles", roles}, c.opts.Args...),
		More: func() []string { return c.flags(m) },
	}
	if c.Links != nil {
		o.Tags = append(slices.Clone(o.Tags), "faults")
		o.Env = []string{"TIDEWIRE_TEST_LINKS=" + c.Links.Addr}
	}
	m.Node = New(c.t, o)
	c.Members = append(c.Members, m)
	return m
}

// flags are those that depend on who is there: the addresses of all others.
func (c *Cluster) flags(m *Member) (args []string) {
	var seeds []string
	for _, other := range c.Members {
		if addr, ok := other.Listeners["gossip"]; ok && other != m {
			seeds = append(seeds, addr)
		} else if other != m && other.Running() {
			if addr, ok := other.said.listener("gossip"); ok {
				seeds = append(seeds, addr)
			}
		}
	}
	if len(seeds) > 0 {
		args = append(args, "--join", strings.Join(seeds, ","))
	}
	if m.Has("coordinator") && slices.Index(c.Members, m) < len(c.opts.Roles) {
		args = append(args, "--bootstrap-expect", strconv.Itoa(c.founds))
	}
	return args
}

// Form runs all nodes, each with the addresses of those before it, waits until
// all are ready, and says how long that took. It returns once all are alive for one
// another: a busy machine may have ended the first life of one at once, and what is
// created before its next one has no replica there.
func (c *Cluster) Form() time.Duration {
	c.t.Helper()
	begin := time.Now()
	for _, m := range c.Members {
		if err := m.Begin(); err != nil {
			c.t.Fatal(err)
		}
		addr, err := m.Listening("gossip")
		if err != nil {
			c.t.Fatal(err)
		}
		if c.Links != nil {
			c.Links.Node(m.Name, addr)
		}
	}
	c.AwaitReady(c.Members...)
	took := time.Since(begin)
	c.AwaitNodes(startTimeout, "all nodes are alive", func(info client.NodesInfo) bool {
		return len(info.Nodes) == len(c.Members) && !slices.ContainsFunc(info.Nodes, func(n client.NodeInfo) bool { return n.State != "alive" })
	})
	return took
}

// Add runs one more node and waits until it is ready.
func (c *Cluster) Add(roles string) *Member {
	c.t.Helper()
	m := c.prepare(roles)
	c.Run(m)
	return m
}

// Run starts nodes, all at once, and waits until all are ready.
func (c *Cluster) Run(members ...*Member) {
	c.t.Helper()
	for _, m := range members {
		if err := m.Begin(); err != nil {
			c.t.Fatalf("%s: %v", m.Name, err)
		}
	}
	c.AwaitReady(members...)
}

// AwaitReady waits for nodes that were begun.
func (c *Cluster) AwaitReady(members ...*Member) {
	c.t.Helper()
	for _, m := range members {
		if err := m.AwaitReady(); err != nil {
			c.t.Fatalf("%s: %v", m.Name, err)
		}
	}
	c.introduce(members)
}

// introduce tells the links who is who.
func (c *Cluster) introduce(members []*Member) {
	c.t.Helper()
	if c.Links == nil {
		return
	}
	for _, m := range members {
		for _, addr := range m.Listeners {
			c.Links.Node(m.Name, addr)
		}
	}
	c.AwaitNodes(startTimeout, "every node is known", func(info client.NodesInfo) bool {
		for _, m := range members {
			x, ok := info.Find(m.Name)
			if !ok {
				return false
			}
			c.Links.Named(x.ID, m.Name)
		}
		return true
	})
}

// Member is the node with a name.
func (c *Cluster) Member(name string) *Member {
	c.t.Helper()
	i := slices.IndexFunc(c.Members, func(m *Member) bool { return m.Name == name })
	if i < 0 {
		c.t.Fatalf("there is no node %q", name)
	}
	return c.Members[i]
}

// Others are all nodes but some.
func (c *Cluster) Others(but ...*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m *Member) bool { return slices.Contains(but, m) })
}

// With are the nodes that have a role.
func (c *Cluster) With(role string) []*Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m *Member) bool { return !m.Has(role) })
}

// StopAll stops every node that runs, all at once, as an operator does.
func (c *Cluster) StopAll() {
	c.t.Helper()
	var running []*Member
	for _, m := range c.Members {
		if m.Running() {
			running = append(running, m)
			m.Terminate()
		}
	}
	for _, m := range running {
		select {
		case <-m.Exited():
		case <-time.After(startTimeout):
			c.t.Fatalf("%s did not stop within %s", m.Name, startTimeout)
		}
		if code := m.ExitCode(); code != 0 {
			c.t.Errorf("%s stopped with exit code %d", m.Name, code)
		}
	}
}

// KillAll ends every node at once.
func (c *Cluster) KillAll() { KillAtOnce(c.Members...) }

// KillAtOnce ends nodes in the same moment.
func KillAtOnce(members ...*Member) {
	for _, m := range members {
		if m.Running() {
			_ = m.cmd.Process.Kill() // it may have ended just now
		}
	}
	for _, m := range members {
		m.Kill() // waits
	}
}

// Dirs are the data folders.
func (c *Cluster) Dirs() (dirs []string) {
	for _, m := range c.With("broker") {
		dirs = append(dirs, m.Dir())
	}
	return dirs
}

// Gateways are the nodes that clients can call.
func (c *Cluster) Gateways() []*Member {
	return slices.DeleteFunc(c.With("gateway"), func(m *Member) bool { return !m.Running() })
}

// API calls the first gateway that runs, but none of some.
func (c *Cluster) API(but ...*Member) *client.API {
	c.t.Helper()
	for _, m := range c.Gateways() {
		if !slices.Contains(but, m) {
			return client.New(m.URL)
		}
	}
	c.t.Fatal("no gateway runs")
	return nil
}

// each asks gateways until one answers as it should.
func (c *Cluster) each(but []*Member, ask func(context.Context, *client.API) error) (err error) {
	for _, m := range c.Gateways() {
		if slices.Contains(but, m) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = ask(ctx, m.api())
		cancel()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", m.Name, err)
	}
	if err == nil {
		err = fmt.Errorf("no gateway runs")
	}
	return err
}
