package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/publish"
	"tidewire/internal/testkit/memnet"
)

// pipes are connections to a server in a bubble of virtual time.
type pipes struct{ *memnet.Listener }

// dial never fails: a server that is closed is not called.
func (p pipes) dial() net.Conn {
	c, err := p.Dial(context.Background(), "", "")
	if err != nil {
		panic(err)
	}
	return c
}

// inVirtualTime serves a topic t in a bubble.
func inVirtualTime(t *testing.T, test func(t *testing.T, m *memory, p pipes)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		api := New(Config{Topology: m, Control: m, Nodes: m.nodes(), Publisher: publish.New(publish.Config{Topology: m, Leader: m})})
		if w := serve(api, "POST", "/topics/", `{"name":"t"}`); w.Code != http.StatusCreated {
			t.Fatal(w.Body)
		}
		server, p := NewServer(api), pipes{memnet.Listen()}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Serve(Patient(p)); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		test(t, m, p)
		server.Close()
		serving.Wait()
	})
}

// A sender that falls silent is told so; what it had sent is not taken for a
// whole record.
func TestASilentSenderIsTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *memory, p pipes) {
		conn := p.dial()
		defer conn.Close()
		began := time.Now()
		fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		if took := time.Since(began); res.StatusCode != 400 || !strings.Contains(string(b), "in time") || took != bodySilence {
			t.Errorf("after %s: %d %s", took, res.StatusCode, b)
		}
		if got := m.values("t", 0); len(got) > 0 {
			t.Errorf("kept %q", got)
		}
	})
}

// Over HTTP/2 too, where a deadline belongs to the stream.
func TestASilentSenderIsToldOverHTTP2(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memory, p pipes) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{
			Protocols:   &protocols,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
		}
		defer transport.CloseIdleConnections()
		in, out := io.Pipe()
		defer out.Close()
		began := time.Now()
		req, _ := http.NewRequest("POST", "http://x/topics/t", in)
		var sending sync.WaitGroup
		defer sending.Wait()
		sending.Go(func() { _, _ = io.WriteString(out, "12345") })
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if took := time.Since(began); res.StatusCode != 400 || !strings.Contains(string(b), "in time") || took != bodySilence {
			t.Errorf("after %s: %d %s", took, res.StatusCode, b)
		}
	})
}

// One that sends a byte now and then does not hold a connection for ever.
func TestATricklingSenderIsTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *memory, p pipes) {
		conn := p.dial()
		var sending sync.WaitGroup
		defer sending.Wait()
		defer conn.Close()
		began := time.Now()
		fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		sending.Go(func() {
			for {
				time.Sleep(20 * time.Second)
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
			}
		})
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); res.StatusCode != 400 || took != bodyTime {
			t.Errorf("after %s: %d", took, res.StatusCode)
		}
	})
}

// A stream of lines may be quiet for minutes, but not for ever: the lines it
// had are answered, and one more says why it ended.
func TestAQuietStreamOfLines(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *memory, p pipes) {
		conn := p.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := func(s string) { fmt.Fprintf(conn, "%x\r\n%s\r\n", len(s), s) }
		chunk("{\"value\":1}\n")
		time.Sleep(lineSilence - time.Second)
		chunk("{\"value\":2}\n{\"val")
		began := time.Now()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		answers := got{body: b}.lines(t)
		if took := time.Since(began); res.StatusCode != 207 || len(answers) != 3 || answers[2]["code"] != "invalid" || took != lineSilence {
			t.Errorf("after %s: %d %s", took, res.StatusCode, b)
		}
		if got := strings.Join(m.values("t", 0), " "); got != "1 2" {
			t.Errorf("kept %s", got)
		}
	})
}

// A deadline of one read does not end a request whose record is being kept.
func TestAReadDeadlineEndsWithTheBody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *memory, p pipes) {
		m.hold = func(answer func()) {
			time.AfterFunc(50*time.Second, answer)
		}
		conn := p.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "POST /topics/t?timeout=1m HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 201 {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

// A client that takes no byte of its answer loses its connection.
func TestAClientThatTakesNothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *memory, p pipes) {
		conn := p.dial()
		defer conn.Close()
		began := time.Now()
		fmt.Fprintf(conn, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(2 * writeTimeout)
		b, err := io.ReadAll(conn)
		if err != nil || len(b) == len(openAPI) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if took := time.Since(began); took != 2*writeTimeout {
			t.Errorf("after %s", took)
		}
	})
}

// One that takes a little now and then gets all of it, however long it takes.
func TestASlowClientGetsItsAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, m *memory, p pipes) {
		conn := p.dial()
		defer conn.Close()
		began := time.Now()
		fmt.Fprintf(conn, "GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		total, piece := 0, make([]byte, 1<<10)
		for {
			time.Sleep(writeTimeout * 8 / 10)
			n, err := conn.Read(piece)
			if total += n; err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); total < len(openAPI) || took < 4*writeTimeout {
			t.Errorf("%d bytes of %d after %s", total, len(openAPI), took)
		}
	})
}

// deadlines records what deadlines a writer was given.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Duration // 0: taken away
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		d.set = append(d.set, 0)
	} else {
		d.set = append(d.set, time.Until(t).Round(time.Second))
	}
	return nil
}

// Over HTTP/2 a deadline ends the stream even between writes, so none may be
// left behind; a writer with deadlines of its own is left alone.
func TestDeadlinesOfWrites(t *testing.T) {
	one := []byte("x")
	for _, c := range []struct {
		name  string
		major int
		write func(w *response)
		want  string
	}{
		{"HTTP/1", 1, func(w *response) { _, _ = w.Write(one); w.end() }, "[0s]"},
		{"HTTP/2", 2, func(w *response) { _, _ = w.Write(one); w.Flush(); w.end() }, "[0s 10s 0s 10s 0s 10s]"},
		{"own", 2, func(w *response) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
			_, _ = w.Write(one)
		}, "[0s 1m0s]"},
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(context.Background(), "GET", "/", nil)
		r.ProtoMajor = c.major
		c.write(newResponse(d, r))
		if got := fmt.Sprint(d.set); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
