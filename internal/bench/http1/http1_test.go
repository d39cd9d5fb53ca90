package http1_test

import (
	"fmt"
	"strings"
	"testing"

	"tidewire/internal/bench/http1"
)

func TestAnAnswerIsFoundOnceItIsWhole(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want http1.Response
	}{
		"with a length": {"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\ncontent-length: 5\r\n\r\nhello", http1.Response{Status: 201, Body: []byte("hello")}},
		"chunked":       {"HTTP/1.1 207 Multi-Status\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", http1.Response{Status: 207, Body: []byte("hello")}},
		"empty":         {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", http1.Response{Status: 204}},
	} {
		for cut := range len(c.text) {
			if _, _, whole, err := http1.ParseResponse([]byte(c.text[:cut]), nil); whole || err != nil {
				t.Fatalf("%s, the first %d bytes: whole %v, %v", name, cut, whole, err)
			}
		}
		r, _, whole, err := http1.ParseResponse([]byte(c.text+"HTTP/1.1 2"), nil)
		if err != nil || !whole || r.Status != c.want.Status || string(r.Body) != string(c.want.Body) || r.Size != len(c.text) {
			t.Errorf("%s: %+v, whole %v, %v", name, r, whole, err)
		}
	}
}

func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	for _, text := range []string{
		"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", strings.Repeat("a", 100_000),
	} {
		if _, _, whole, err := http1.ParseResponse([]byte(text), nil); err == nil {
			t.Errorf("%.40q is taken: whole %v", text, whole)
		}
	}
}

type heard []string

func (h *heard) Event(name, data []byte) error {
	*h = append(*h, string(name)+"="+string(data))
	return nil
}

func TestEventsAreFoundHoweverTheBytesArrive(t *testing.T) {
	const stream = "id: a\n\n:\n\nretry: 5\n\nevent: message\nid: b\ndata: {\"n\":1}\n\nevent: message\ndata: {\"n\":2}\n\nevent: closing\ndata: {}\n\n"
	const want = `[message={"n":1} message={"n":2} closing={}]`
	var chunked strings.Builder
	for i := 0; i < len(stream); i += 7 {
		piece := stream[i:min(i+7, len(stream))]
		fmt.Fprintf(&chunked, "%x\r\n%s\r\n", len(piece), piece)
	}
	for _, c := range []struct {
		head http1.Head
		text string
	}{{http1.Head{}, stream}, {http1.Head{Chunked: true}, chunked.String()}} {
		for step := 1; step <= len(c.text); step++ {
			var h heard
			e := http1.NewEvents(c.head, &h)
			var rest []byte
			for i := 0; i < len(c.text); i += step {
				rest = append(rest, c.text[i:min(i+step, len(c.text))]...)
				used, err := e.Feed(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest = append([]byte{}, rest[used:]...)
			}
			if got := fmt.Sprint(h); got != want {
				t.Fatalf("chunked %v, %d bytes at a time: %s, want %s", c.head.Chunked, step, got, want)
			}
		}
	}
}
