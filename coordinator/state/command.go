package state

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Formats of a command's bytes. A program refuses one it does not know instead of
// guessing. In format 1 a registration counts at once; in format 2 it counts from the
// Activate on, and there are the changes of a cluster of several nodes. Format 3 is the
// same with those of consumer groups.
const (
	formatLone     = 1
	commandVersion = 3
)

// MaxCommandBytes bounds one command; the largest move the ISRs of cluster.MaxParts
// partitions.
const MaxCommandBytes = 1 << 20

// RequestID names one intended change through all its retries.
type RequestID uuid.UUID

// MarshalText writes the canonical UUID form.
func (r RequestID) MarshalText() ([]byte, error) { return uuid.UUID(r).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (r *RequestID) UnmarshalText(b []byte) error { return (*uuid.UUID)(r).UnmarshalText(b) }

// Command is one entry of the log: it founds the cluster or makes one change.
type Command struct {
	Request RequestID
	Time    int64 // ms since 1970 at the proposer

	Found *Found `json:",omitempty"`
	cluster.Change

	format byte // as Decode found it
}

// Found gives the cluster its identity. A cluster that has one keeps it.
type Found struct{ Cluster ident.ClusterID }

// Kind names what the command does, for metrics and messages.
func (c *Command) Kind() string {
	if c.Found != nil {
		return "found"
	}
	return c.Change.Kind()
}

func (c *Command) count() int {
	n := c.Count()
	if c.Found != nil {
		n++
	}
	return n
}

/*
Encode writes a command as Raft keeps it:

	+---------+-----------------+----------------+
	| version | CRC-32C, big e. | JSON           |
	| 1 byte  | 4 bytes         |                |
	+---------+-----------------+----------------+

The CRC covers the version and the JSON, so that a bit that flips on its way
through a store or a network is noticed and never applied.
*/
func Encode(c *Command) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	most := MaxCommandBytes
	if c.Commit != nil {
		most = cluster.MaxCommitBytes
	}
	if len(body)+5 > most {
		return nil, fmt.Errorf("encode command: %d bytes are more than the %d that a %s may have", len(body)+5, most, c.Kind())
	}
	b := make([]byte, 5, 5+len(body))
	b[0] = commandVersion
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[1:], checksum(b[0], body))
	if _, err := Decode(b); err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return b, nil
}

// Decode reads what Encode wrote and checks all of it.
func Decode(b []byte) (*Command, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("a command of %d bytes is cut short", len(b))
	}
	if len(b) > MaxCommandBytes {
		return nil, fmt.Errorf("a command of %d bytes is longer than %d", len(b), MaxCommandBytes)
	}
	if got, want := checksum(b[0], b[5:]), binary.BigEndian.Uint32(b[1:]); got != want {
		return nil, fmt.Errorf("the command's checksum is %08x, not %08x: its bytes have changed", got, want)
	}
	if b[0] < formatLone || b[0] > commandVersion {
		return nil, fmt.Errorf("command format %d is not known to this version of tidewire, which knows up to %d", b[0], commandVersion)
	}
	c := Command{format: b[0]}
	if err := cluster.Strictly(b[5:], &c); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if n := c.count(); n != 1 {
		return nil, fmt.Errorf("a command does exactly one thing, not %d", n)
	}
	return &c, nil
}

func checksum(version byte, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once, inside the library
	return crc32.Update(crc32.Checksum([]byte{version}, table), table, body)
}
