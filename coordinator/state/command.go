package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// commandVersion is the format of a command's bytes. A program refuses a
// version it does not know instead of guessing.
const commandVersion = 1

// MaxCommandBytes bounds one command; the largest is a node's registration.
const MaxCommandBytes = 64 << 10

// RequestID names one intended change through all its retries.
type RequestID uuid.UUID

// MarshalText writes the canonical UUID form.
func (r RequestID) MarshalText() ([]byte, error) { return uuid.UUID(r).MarshalText() }

// UnmarshalText reads the canonical UUID form.
func (r *RequestID) UnmarshalText(b []byte) error { return (*uuid.UUID)(r).UnmarshalText(b) }

// Command asks for one change: exactly one of the pointers is set.
type Command struct {
	Request RequestID
	Time    int64 // ms since 1970 at the proposer

	Found    *Found    `json:",omitempty"`
	Register *Register `json:",omitempty"`
	Create   *Create   `json:",omitempty"`
	Alter    *Alter    `json:",omitempty"`
	Delete   *Delete   `json:",omitempty"`
}

// Found gives the cluster its identity. A cluster that has one keeps it.
type Found struct{ Cluster ident.ClusterID }

// Register begins a new life of a node. State, Since and BrokerEpoch of the
// node are decided here, whatever the command says.
type Register struct{ Node cluster.Node }

// Create makes a topic. ID is a random one chosen by the proposer; it is used
// only if the topic does not exist yet.
type Create struct {
	ID   ident.TopicID
	Spec cluster.TopicSpec
}

// Alter changes settings of a topic.
type Alter struct {
	Name  string
	Patch cluster.SettingsPatch
}

// Delete ends one life of a topic.
type Delete struct{ Name string }

// Kind names what the command does, for metrics and messages.
func (c *Command) Kind() string {
	switch {
	case c.Found != nil:
		return "found"
	case c.Register != nil:
		return "register"
	case c.Create != nil:
		return "create"
	case c.Alter != nil:
		return "alter"
	case c.Delete != nil:
		return "delete"
	}
	return "none"
}

func (c *Command) count() int {
	n := 0
	for _, set := range []bool{c.Found != nil, c.Register != nil, c.Create != nil, c.Alter != nil, c.Delete != nil} {
		if set {
			n++
		}
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
	if len(body)+5 > MaxCommandBytes {
		return nil, fmt.Errorf("encode command: %d bytes are more than the %d a command may have", len(body)+5, MaxCommandBytes)
	}
	b := make([]byte, 5, 5+len(body))
	b[0] = commandVersion
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[1:], checksum(b[0], body))
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
	if b[0] != commandVersion {
		return nil, fmt.Errorf("command format %d is not known to this version of tidewire, which knows %d", b[0], commandVersion)
	}
	var c Command
	if err := strictJSON(b[5:], &c); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if n := c.count(); n != 1 {
		return nil, fmt.Errorf("a command does exactly one thing, not %d", n)
	}
	return &c, nil
}

// strictJSON refuses fields it does not know: a newer version's field ignored
// would make two nodes disagree on what a command did.
func strictJSON(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there are bytes after the end")
	}
	return nil
}

func checksum(version byte, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once, inside the library
	return crc32.Update(crc32.Checksum([]byte{version}, table), table, body)
}
