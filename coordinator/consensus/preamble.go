package consensus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"tidewire/internal/ident"
)

/*
preamble is what a coordinator says first on a connection to another's raft:

	+--------+---------+-------------+-------------+-------------+
	| "TWRF" | version | cluster id  | source node | target node |
	| 4      | 1       | 16          | 16          | 16          |
	+--------+---------+-------------+-------------+-------------+

raft itself names neither: an address that went over to a node of another cluster,
or to another node of this one, would be heard there.
*/
type preamble struct {
	Cluster        ident.ClusterID
	Source, Target ident.NodeID
}

const (
	preambleMagic   = "TWRF"
	preambleVersion = 1
	preambleBytes   = len(preambleMagic) + 1 + 3*16
	// preambleLimit bounds how long a connection may stay silent.
	preambleLimit = 5 * time.Second
)

func (p preamble) bytes() []byte {
	b := append(make([]byte, 0, preambleBytes), preambleMagic...)
	b = append(b, preambleVersion)
	b = append(b, p.Cluster[:]...)
	b = append(b, p.Source[:]...)
	return append(b, p.Target[:]...)
}

func parsePreamble(b []byte) (p preamble, err error) {
	switch {
	case len(b) != preambleBytes || string(b[:4]) != preambleMagic:
		return p, errors.New("this is no coordinator of tidewire")
	case b[4] != preambleVersion:
		return p, fmt.Errorf("the other side speaks version %d, this one %d", b[4], preambleVersion)
	}
	copy(p.Cluster[:], b[5:])
	copy(p.Source[:], b[21:])
	copy(p.Target[:], b[37:])
	return p, nil
}

func (p preamble) send(conn net.Conn, limit time.Duration) error {
	if err := conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := conn.Write(p.bytes()); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

// introduced is a connection that is read only behind a preamble that fits.
type introduced struct {
	net.Conn
	to   *stream
	once sync.Once
	err  error
	done func() // it counts as unknown until this is called
}

func (c *introduced) Close() error {
	c.done()
	return c.Conn.Close()
}

func (c *introduced) Read(b []byte) (int, error) {
	c.once.Do(func() { c.err = c.introduce(); c.done() })
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(b)
}

func (c *introduced) introduce() error {
	if err := c.SetReadDeadline(time.Now().Add(preambleLimit)); err != nil {
		return err
	}
	b := make([]byte, preambleBytes)
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		return fmt.Errorf("a connection to raft from %s says nothing: %w", c.RemoteAddr(), err)
	}
	p, err := parsePreamble(b)
	if err == nil {
		err = c.to.takes(p)
	}
	if err != nil {
		return fmt.Errorf("a connection to raft from %s is refused: %w", c.RemoteAddr(), err)
	}
	return c.SetReadDeadline(time.Time{})
}

// takes says whether what a caller wants is here.
func (s *stream) takes(p preamble) error {
	switch mine := s.cluster(); {
	case p.Cluster != mine:
		return fmt.Errorf("it is of cluster %s, this one is %s", p.Cluster, mine)
	case p.Target != s.self:
		return fmt.Errorf("it looks for node %s, this one is %s", p.Target, s.self)
	}
	return nil
}

func parseID(id raft.ServerID) (ident.NodeID, error) {
	u, err := uuid.Parse(string(id))
	if err != nil {
		return ident.NodeID{}, fmt.Errorf("coordinator %q has no node's id: %w", id, err)
	}
	return ident.NodeID(u), nil
}
