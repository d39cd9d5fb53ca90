package boot

import (
	"crypto"
	"log/slog"
	"slices"
	"time"
)

// Config is how a node runs: every field is filled in and valid. It is a
// value, copied once and never changed.
type Config struct {
	HTTP, RPC, Raft, Gossip string // host:port to listen on; port 0 picks one

	// What others dial. Empty: the address that was bound. AdvertiseHTTP may have
	// port 0, which stands for the bound one; see Advertised.
	AdvertiseHTTP, AdvertiseRPC, AdvertiseRaft, AdvertiseGossip string

	Data  string // the data folder
	Name  string
	Zone  string   // may be empty
	Roles []string // at least one, in the order gateway, broker, coordinator

	Join            []string // gossip addresses of nodes to join
	BootstrapExpect int      // found a cluster of so many coordinators; 0: found none

	ReplicaLag     time.Duration // behind for so long: out of the ISR
	BrokerLease    time.Duration // unheard for so long: dead
	ReplicaReplace time.Duration // dead for so long: its replicas are placed elsewhere
	ScrubRate      int64         // bytes a second; 0: no scrub
	ScrubEvery     time.Duration // how often a scrub of everything begins

	LogLevel  slog.Level
	LogFormat string // text or json

	Insecure       bool     // listen beyond loopback although nobody is asked who they are
	AllowedOrigins []string // besides the node's own origin

	AuthKey                  Key                // the secret of tokens; nil: none
	AuthPublic               []crypto.PublicKey // of tokens, in place of a secret
	AuthKeyExposed           bool               // every user of the machine can read the secret's file
	AuthJWKSURL              string             // where public keys of tokens are published; "": nowhere
	AuthIssuer, AuthAudience string             // that tokens must name; "": any

	SlowConsumerTimeout time.Duration
	DrainTimeout        time.Duration

	MaxConnections      int // 0: as many as the ceiling of open files allows
	MaxConnectionsPerIP int // 0: no bound
	MaxConnectionRate   int // a second; 0: no bound
	MaxSubscriptions    int // a connection
	MaxFrameBytes       int
	MaxPublishRate      int   // records a second of a client; 0: no bound
	MinFreeBytes        int64 // less free space on the data disk than this: no produce

	effective []Entry
}

// Has reports whether the node has a role.
func (c Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// Entry is one line of the effective configuration.
type Entry struct {
	Name   string
	Value  string // masked where it is a secret
	Source string // flag, variable, file or default
}

// Effective lists every setting with its value and where that came from, in the
// order of the table.
func (c Config) Effective() []Entry { return c.effective }

// LogValue shows the configuration in a log, name by name, each with where it
// came from.
func (c Config) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, len(c.effective))
	for _, e := range c.effective {
		attrs = append(attrs, slog.String(e.Name, e.Value+" ("+e.Source+")"))
	}
	return slog.GroupValue(attrs...)
}
