package ports

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"
)

func number(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestAKeptPortIsNobodyElses(t *testing.T) {
	var port int
	t.Run("while the test lasts", func(t *testing.T) {
		kept := Keep(t)
		port = number(t, kept)
		if kernel := outgoing(t); len(pickable(kernel)) > 1 && kernel.has(port) {
			t.Errorf("%d is of the range that the kernel gives away: %v", port, kernel)
		}
		for range 2 { // it comes and goes
			l, err := net.Listen("tcp", kept)
			if err != nil {
				t.Fatal(err)
			}
			u, err := net.ListenPacket("udp", kept)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Close(), u.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := take(port); err == nil {
				t.Error("it was given to another one too")
			}
		}
	})
	guard, err := take(port)
	if err != nil {
		t.Fatalf("after the test: %v", err)
	}
	_ = guard.Close()
}

func TestWhereSomethingListensIsNotFree(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		port := number(t, Keep(t))
		if err := free(port); err != nil {
			t.Fatal(err)
		}
		if network == "tcp" {
			l, err := net.Listen(network, address(host, port))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		} else {
			l, err := net.ListenPacket(network, address(host, port))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		if free(port) == nil {
			t.Errorf("%s listens at %d, and it is free", network, port)
		}
	}
}

func TestPortsOutsideOfTheKernelsRange(t *testing.T) {
	for _, c := range []struct {
		kernel span
		want   []span
	}{
		{span{32768, 60999}, []span{{10000, 32767}, {61000, 65535}}},
		{span{15000, 65535}, []span{{10000, 14999}, {65536, 65535}}},
		{span{1024, 60999}, []span{{10000, 1023}, {61000, 65535}}},
		{span{1024, 65535}, []span{{10000, 65535}}},
		{span{1024, 9000}, []span{{10000, 1023}, {10000, 65535}}},
	} {
		got := pickable(c.kernel)
		if !slices.Equal(got, c.want) {
			t.Errorf("beside %v: %v, want %v", c.kernel, got, c.want)
		}
		n := 0
		for _, s := range got {
			n += s.size()
		}
		for _, at := range []int{0, n / 2, n - 1} {
			port := pick(got, func(int) int { return at })
			if port < lowest || port > highest || len(got) > 1 && c.kernel.has(port) {
				t.Errorf("beside %v the draw %d gives %d", c.kernel, at, port)
			}
		}
	}
}
