package boot

import (
	"strings"
	"time"
)

// EnvPrefix begins the name of every variable of the system.
const EnvPrefix = "TIDEWIRE_"

// Setting is one thing that can be set, under the same name everywhere.
type Setting struct {
	Name    string // as in the file
	Default string // in the form it is written; the help shows it
	Value   string // what the help calls the value; empty for a switch
	Help    string
	Secret  bool

	set func(c *Config, text string) error
}

// Flag is the setting's name as a flag, without the dashes.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Variable is the setting's name as an environment variable.
func (s Setting) Variable() string { return EnvPrefix + strings.ToUpper(s.Name) }

// Bounds of the numeric settings.
const (
	minTimeout       = 100 * time.Millisecond
	maxTimeout       = 10 * time.Minute
	maxConnections   = 10_000_000
	maxSubscriptions = 65_536
	maxPublishRate   = 10_000_000
	minFrameBytes    = 4 << 10
	maxFrameBytes    = 64 << 20
	maxFreeBytes     = 1 << 50
	minLag           = 100 * time.Millisecond
	maxLag           = time.Minute
	minLease         = 500 * time.Millisecond // an election of the coordinators fits in
	maxLease         = time.Minute
	minReplace       = time.Second
	maxReplace       = 30 * 24 * time.Hour
	maxScrubRate     = 1 << 40
	minScrubEvery    = time.Second
	maxScrubEvery    = 90 * 24 * time.Hour
	mostCoordinators = 15 // each decision waits for more than half of them
	mostSeeds        = 64
)

// Settings is the table of all settings, in the order of the help.
func Settings() []Setting {
	return []Setting{
		{Name: "http", Default: "127.0.0.1:8080", Value: "host:port", Help: "listen here for HTTP, WebSocket, SSE and the page; port 0 picks one", set: address(func(c *Config) *string { return &c.HTTP })},
		{Name: "rpc", Default: "127.0.0.1:7400", Value: "host:port", Help: "listen here for gRPC between nodes", set: address(func(c *Config) *string { return &c.RPC })},
		{Name: "raft", Default: "127.0.0.1:7401", Value: "host:port", Help: "listen here for Raft between coordinators", set: address(func(c *Config) *string { return &c.Raft })},
		{Name: "gossip", Default: "127.0.0.1:7402", Value: "host:port", Help: "listen here for gossip, tcp and udp", set: address(func(c *Config) *string { return &c.Gossip })},
		{Name: "advertise_http", Value: "host:port", Help: "what clients dial, where it is not the address bound", set: advertise(func(c *Config) *string { return &c.AdvertiseHTTP })},
		{Name: "advertise_rpc", Value: "host:port", Help: "what other nodes dial for gRPC", set: advertise(func(c *Config) *string { return &c.AdvertiseRPC })},
		{Name: "advertise_raft", Value: "host:port", Help: "what other coordinators dial for Raft", set: advertise(func(c *Config) *string { return &c.AdvertiseRaft })},
		{Name: "advertise_gossip", Value: "host:port", Help: "what other nodes dial for gossip", set: advertise(func(c *Config) *string { return &c.AdvertiseGossip })},
		{Name: "data", Default: "./tidewire-data", Value: "dir", Help: "the data folder; made if it is missing", set: folder},
		{Name: "name", Value: "name", Help: "the node's name; the host's name if not given", set: label(func(c *Config) *string { return &c.Name })},
		{Name: "zone", Value: "name", Help: "the zone the node stands in", set: label(func(c *Config) *string { return &c.Zone })},
		{Name: "roles", Default: "gateway,broker,coordinator", Value: "list", Help: "what the node does: any of the three", set: roles},
		{Name: "join", Value: "list", Help: "gossip addresses of nodes of the cluster to join", set: seeds},
		{Name: "bootstrap_expect", Value: "n", Help: "found a cluster once so many coordinators with empty folders see one another; not given: 1 without join, never with it", set: bootstrapExpect},
		{Name: "config", Value: "file", Help: "read settings from this YAML file"},
		{Name: "log_level", Default: "info", Value: "level", Help: "debug, info, warn or error", set: logLevel},
		{Name: "log_format", Default: "text", Value: "format", Help: "text or json", set: oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
		{Name: "insecure", Default: "false", Help: "listen beyond loopback although nobody is asked who they are", set: boolean(func(c *Config) *bool { return &c.Insecure })},
		{Name: "allowed_origins", Value: "list", Help: "browser origins that may connect besides the node's own, as https://app.example.com", set: origins},
		{Name: "slow_consumer_timeout", Default: "10s", Value: "duration", Help: "close a connection that has taken no byte for so long", set: duration(func(c *Config) *time.Duration { return &c.SlowConsumerTimeout }, minTimeout, maxTimeout)},
		{Name: "drain_timeout", Default: "10s", Value: "duration", Help: "how long a stop waits for clients to leave", set: duration(func(c *Config) *time.Duration { return &c.DrainTimeout }, minTimeout, maxTimeout)},
		{Name: "max_connections", Default: "0", Value: "n", Help: "connections the node takes; 0: as many as its open files allow", set: number(func(c *Config) *int { return &c.MaxConnections }, 0, maxConnections)},
		{Name: "max_connections_per_ip", Default: "0", Value: "n", Help: "connections it takes from one address; 0: no bound", set: number(func(c *Config) *int { return &c.MaxConnectionsPerIP }, 0, maxConnections)},
		{Name: "max_connection_rate", Default: "2000", Value: "n", Help: "connections it takes in a second, over all transports; 0: no bound", set: number(func(c *Config) *int { return &c.MaxConnectionRate }, 0, maxConnections)},
		{Name: "max_subscriptions", Default: "128", Value: "n", Help: "subscriptions of one connection", set: number(func(c *Config) *int { return &c.MaxSubscriptions }, 1, maxSubscriptions)},
		{Name: "max_frame_bytes", Default: "2MiB", Value: "size", Help: "the longest WebSocket frame taken", set: size(func(c *Config, n int64) { c.MaxFrameBytes = int(n) }, minFrameBytes, maxFrameBytes)},
		{Name: "max_publish_rate", Default: "0", Value: "n", Help: "records a second that one client may publish; 0: no bound", set: number(func(c *Config) *int { return &c.MaxPublishRate }, 0, maxPublishRate)},
		{Name: "min_free_bytes", Default: "64MiB", Value: "size", Help: "producing stops when the data disk has less free than this", set: size(func(c *Config, n int64) { c.MinFreeBytes = n }, 0, maxFreeBytes)},
		{Name: "auth_key_file", Value: "file", Help: "the HS256 secret of tokens, or public keys in PEM; with it every caller needs one", Secret: true, set: keyFile},
		{Name: "auth_jwks_url", Value: "url", Help: "the public keys of tokens are published here (JWKS), as well as or in place of auth_key_file", set: keysURL},
		{Name: "auth_issuer", Value: "text", Help: "the issuer tokens must name", set: text(func(c *Config) *string { return &c.AuthIssuer })},
		{Name: "auth_audience", Value: "text", Help: "the audience tokens must name", set: text(func(c *Config) *string { return &c.AuthAudience })},
		{Name: "replica_lag", Default: "2s", Value: "duration", Help: "how long a replica may lag behind its leader before it leaves the ISR", set: duration(func(c *Config) *time.Duration { return &c.ReplicaLag }, minLag, maxLag)},
		{Name: "broker_lease", Default: "2s", Value: "duration", Help: "how long a node that is not heard of counts as alive; it renews four times as often", set: duration(func(c *Config) *time.Duration { return &c.BrokerLease }, minLease, maxLease)},
		{Name: "replica_replace", Default: "10m", Value: "duration", Help: "replicas of a node that has been dead for so long are placed on others", set: duration(func(c *Config) *time.Duration { return &c.ReplicaReplace }, minReplace, maxReplace)},
		{Name: "scrub_rate", Default: "8MiB", Value: "size", Help: "read so much of what is kept in a second to find damage before readers do; 0: never", set: size(func(c *Config, n int64) { c.ScrubRate = n }, 0, maxScrubRate)},
		{Name: "scrub_every", Default: "24h", Value: "duration", Help: "begin to read everything that is kept again so often, the first time 5 minutes after the start", set: duration(func(c *Config) *time.Duration { return &c.ScrubEvery }, minScrubEvery, maxScrubEvery)},
	}
}

// clientVariables are variables of the other commands: known, and not
// for a node.
var clientVariables = [...]string{"TIDEWIRE_SERVER", "TIDEWIRE_TOKEN"}
