package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Node is what gossip tells of a node.
type Node struct {
	ID        ident.NodeID
	Name      string
	Roles     []string
	Addresses cluster.Addresses
	Cluster   ident.ClusterID // zero: none yet
	// Empty says that its coordinator's folder is, and that it waits for a cluster to
	// join, or to found one with Expect coordinators. Sees is what Sees gives. Settle
	// sets them.
	Empty  bool
	Expect int
	Sees   uint32

	Started int64 // ms since 1970: which process of this node it is
}

// Coordinator says whether the node has that role.
func (n *Node) Coordinator() bool { return slices.Contains(n.Roles, "coordinator") }

// maxMeta is the most that memberlist carries of a node.
const maxMeta = 512

// card is a node as it travels: memberlist leaves 512 bytes.
type card struct {
	ID      ident.NodeID    `json:"i"`
	Name    string          `json:"n"`
	Roles   string          `json:"r"` // a letter each
	HTTP    string          `json:"h,omitempty"`
	RPC     string          `json:"p,omitempty"`
	Raft    string          `json:"f,omitempty"`
	Cluster ident.ClusterID `json:"c,omitzero"`
	Empty   bool            `json:"e,omitempty"`
	Expect  int             `json:"x,omitempty"`
	Sees    uint32          `json:"s,omitempty"`
	Started int64           `json:"t"`
}

const cardVersion = 1

func letters() map[string]byte {
	return map[string]byte{"gateway": 'g', "broker": 'b', "coordinator": 'c'}
}

// encode is the node's card. It does not fit where addresses are very long.
func (n *Node) encode() ([]byte, error) {
	c := card{
		ID: n.ID, Name: n.Name, HTTP: n.Addresses.HTTP, RPC: n.Addresses.RPC, Raft: n.Addresses.Raft,
		Cluster: n.Cluster, Empty: n.Empty, Expect: n.Expect, Sees: n.Sees, Started: n.Started,
	}
	for _, role := range n.Roles {
		c.Roles += string(letters()[role])
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(b) >= maxMeta {
		return nil, fmt.Errorf("the node's name and addresses take %d bytes, and gossip carries %d: take shorter ones", len(b), maxMeta-1)
	}
	return append([]byte{cardVersion}, b...), nil
}

func decode(b []byte) (Node, error) {
	if len(b) == 0 || b[0] != cardVersion {
		return Node{}, errors.New("it tells nothing of itself that this version of tidewire understands")
	}
	var c card
	if err := json.Unmarshal(b[1:], &c); err != nil {
		return Node{}, fmt.Errorf("what it tells of itself: %w", err)
	}
	if c.ID == (ident.NodeID{}) {
		return Node{}, errors.New("it has no id")
	}
	n := Node{
		ID: c.ID, Name: c.Name, Addresses: cluster.Addresses{HTTP: c.HTTP, RPC: c.RPC, Raft: c.Raft},
		Cluster: c.Cluster, Empty: c.Empty, Expect: c.Expect, Sees: c.Sees, Started: c.Started,
	}
	for _, role := range []string{"gateway", "broker", "coordinator"} {
		if strings.IndexByte(c.Roles, letters()[role]) >= 0 {
			n.Roles = append(n.Roles, role)
		}
	}
	return n, nil
}
