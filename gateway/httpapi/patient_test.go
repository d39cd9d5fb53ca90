package httpapi

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// toldConn notes which deadlines reach the socket.
type toldConn struct {
	net.Conn
	reads, writes []time.Time
}

func (c *toldConn) SetReadDeadline(t time.Time) error {
	c.reads = append(c.reads, t)
	return c.Conn.SetReadDeadline(t)
}

func (c *toldConn) SetWriteDeadline(t time.Time) error {
	c.writes = append(c.writes, t)
	return c.Conn.SetWriteDeadline(t)
}

// patientPair is a patient connection, the socket below it, and its client.
func patientPair() (*patientConn, *toldConn, net.Conn) {
	client, server := net.Pipe()
	below := &toldConn{Conn: server}
	return &patientConn{Conn: below}, below, client
}

func TestDeadlinesThatNobodyWaitsForCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, below, client := patientPair()
		defer c.Close()
		defer client.Close()
		for range 10 {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetWriteDeadline(time.Time{})
		}
		go client.Write([]byte("ab"))
		b := make([]byte, 1)
		for range 2 {
			if _, err := c.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			for {
				if _, err := client.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}()
		for range 10 {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if len(below.reads) != 0 || len(below.writes) != 1 {
			t.Fatalf("the socket heard of %d deadlines for reads and %d for writes; none and one were needed", len(below.reads), len(below.writes))
		}
	})
}

func TestDeadlinesCountForCallsUnderWayAndThoseToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, client := patientPair()
		defer c.Close()
		defer client.Close()
		failsAfter := func(want time.Duration, call func([]byte) (int, error)) {
			t.Helper()
			began := time.Now()
			if _, err := call([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != want {
				t.Fatalf("after %s: %v, and it should have failed after %s", time.Since(began), err, want)
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
		failsAfter(3*time.Second, c.Read)
		failsAfter(0, c.Read)
		_ = c.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { _ = c.SetReadDeadline(time.Now()) })
		failsAfter(time.Hour, c.Read)

		failsAfter(writeTimeout, c.Write)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		failsAfter(time.Second, c.Write)
		_ = c.SetWriteDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { _ = c.SetWriteDeadline(time.Now().Add(time.Second)) })
		failsAfter(2*time.Second, c.Write)
	})
}

// Whoever hijacks a connection finds on its socket what was set last.
func TestAHijackedSocketHasTheDeadlineThatWasSetLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, client := patientPair()
		defer c.Close()
		defer client.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Time{})
		own := c.Hijacked()
		go client.Write([]byte("x"))
		if _, err := own.Read(make([]byte, 1)); err != nil {
			t.Fatal("the socket was left with a deadline that is over:", err)
		}
	})
}
