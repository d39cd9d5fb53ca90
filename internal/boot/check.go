package boot

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"tidewire/internal/wire"
)

// listener is one of the four listeners as the checks see it.
type listener struct {
	name, bind string
	advertised string
}

func (c *Config) listeners() []listener {
	return []listener{
		{"http", c.HTTP, c.AdvertiseHTTP},
		{"rpc", c.RPC, c.AdvertiseRPC},
		{"raft", c.Raft, c.AdvertiseRaft},
		{"gossip", c.Gossip, c.AdvertiseGossip},
	}
}

// withDefaults fills in what follows from the host.
func (c Config) withDefaults(hostname string) Config {
	if !isLabel(hostname) {
		hostname = "tidewire"
	}
	c.Name = cmp.Or(c.Name, hostname)
	// A node that was told of others founds no cluster beside theirs unasked.
	if c.BootstrapExpect == 0 && len(c.Join) == 0 && c.Has(Coordinator) {
		c.BootstrapExpect = 1
	}
	for i := range c.effective {
		switch e := &c.effective[i]; e.Name {
		case "name":
			e.Value = c.Name
		case "bootstrap_expect":
			e.Value = strconv.Itoa(c.BootstrapExpect)
		}
	}
	// A browser that came in through every interface finds the host by its
	// name. Nodes do not get such a guess: a wrong one would split a cluster.
	host, _, err := net.SplitHostPort(c.HTTP)
	if err == nil && everyInterface(host) && c.AdvertiseHTTP == "" {
		c.AdvertiseHTTP = net.JoinHostPort(hostname, "0")
	}
	return c
}

// check finds the faults that lie between settings. Each setting by itself is
// valid by now.
func (c *Config) check() []error {
	faults := append(c.checkAuth(), c.checkCluster()...)
	bound := map[string]string{}
	for _, l := range c.listeners() {
		host, port, err := splitAddress(l.bind)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", l.name, err))
			continue
		}
		if !c.Insecure && !loopback(host) && !(l.name == "http" && c.Asks()) {
			faults = append(faults, c.exposed(l))
		}
		if everyInterface(host) && l.advertised == "" {
			faults = append(faults, fmt.Errorf("%s: %s is every interface; say what other nodes dial with advertise_%s", l.name, l.bind, l.name))
		}
		if other, taken := bound[l.bind]; taken && port != 0 {
			faults = append(faults, fmt.Errorf("%s: %s is taken by %s already", l.name, l.bind, other))
		}
		bound[l.bind] = l.name
	}
	return faults
}

// checkCluster finds settings of a cluster that cannot go together.
func (c *Config) checkCluster() (faults []error) {
	if !c.Has(Coordinator) {
		if c.BootstrapExpect > 0 {
			faults = append(faults, fmt.Errorf("bootstrap_expect: coordinators found a cluster, and the roles of this node, %s, lack that", strings.Join(c.Roles, ",")))
		}
		if len(c.Join) == 0 {
			faults = append(faults, fmt.Errorf("join: a node that is no coordinator belongs to a cluster with others: give the gossip address of one of them"))
		}
	}
	// Copying a node's data elsewhere because of a pause would cost more than the pause.
	if least := max(c.BrokerLease, c.ReplicaLag); c.ReplicaReplace < 2*least {
		faults = append(faults, fmt.Errorf("replica_replace: %s is less than twice %s, in which a node is found dead (broker_lease, replica_lag)",
			wire.ShortDuration(c.ReplicaReplace), wire.ShortDuration(least)))
	}
	return faults
}

// Advertised gives the address others dial: the one that was set, with the
// bound port for port 0, or the bound address itself.
func Advertised(set, bound string) string {
	if set == "" {
		return bound
	}
	host, port, err := net.SplitHostPort(set)
	if err != nil || port != "0" {
		return set
	}
	_, boundPort, err := net.SplitHostPort(bound)
	if err != nil {
		return set
	}
	return net.JoinHostPort(host, boundPort)
}
