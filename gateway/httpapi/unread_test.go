package httpapi

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that sends its whole body before it looks for the answer gets the
// refusal, not a broken pipe.
func TestRefusalReachesAClientThatSendsEverythingFirst(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	for _, c := range []struct {
		name, path, code string
	}{
		{"too large", "/topics/orders", "message-too-large"},
		{"no topic", "/topics/none", "topic-not-found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// More than the buffers between the two take: the client's is small, and the
			// server's grows only as it is read. A busy machine reads little more in unreadTime.
			const size = 4 << 20
			conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", c.path, size); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(bytes.Repeat([]byte{'x'}, size)); err != nil {
				t.Fatalf("the connection ended under the body: %v", err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var body bytes.Buffer
			if _, err := body.ReadFrom(res.Body); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(body.String(), c.code) || !res.Close {
				t.Errorf("%d, close %v: %s; want %s, and the connection closed", res.StatusCode, res.Close, body.String(), c.code)
			}
		})
	}
}
