package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/fault"
)

// begun is a Starting on a port of its own, until end is called.
func begun(t *testing.T) (l *net.TCPListener, s *Starting, end func()) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s = NewStarting(StartingConfig{Listener: l, OpenFiles: 100, AllowedOrigins: []string{"https://app.example.com"}, Why: func() []error { return []error{fault.New(fault.Draining, "waits for n2")} }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return l, s, func() { cancel(); running.Wait() }
}

// ask sends one request over a connection of its own and says what came.
func askAt(conn net.Conn, head string) (*http.Response, string, error) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, head+"\r\nHost: here\r\n\r\n"); err != nil {
		return nil, "", err
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, "", err
	}
	if res.Close {
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			return nil, "", fmt.Errorf("the connection does not end as it says: %w", err)
		}
	}
	return res, string(b), nil
}

func asked(t *testing.T, conn net.Conn, head string) (*http.Response, string) {
	t.Helper()
	res, body, err := askAt(conn, head)
	if err != nil {
		t.Fatalf("%s: %v", head, err)
	}
	return res, body
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestANodeThatStartsAnswersEverything(t *testing.T) {
	l, _, end := begun(t)
	defer end()
	for head, want := range map[string]string{
		"GET /healthz HTTP/1.1":                           `200 {"status":"alive"}`,
		"GET /healthz/ HTTP/1.1":                          `200 {"status":"alive"}`,
		"GET /healthz?x=1 HTTP/1.1":                       `400 {"type":"/problems/unknown-field"`,
		"GET /readyz HTTP/1.1":                            `503 {"type":"/problems/draining","title":"Draining","status":503,"detail":"waits for n2","code":"draining","reasons":["waits for n2"]}`,
		"GET /topics/ HTTP/1.1":                           `503 {"type":"/problems/draining","title":"Draining","status":503,"detail":"waits for n2","code":"draining"}`,
		"POST /topics/t HTTP/1.1\r\nContent-Length: 0":    `503 {"type":"/problems/draining"`,
		"POST /readyz HTTP/1.1\r\nContent-Length: 0":      `503 {"type":"/problems/draining"`,
		"GET /ws HTTP/1.1\r\nUpgrade: websocket":          `503 {"type":"/problems/draining"`,
		"GET /healthz HTTP/1.0\r\nConnection: keep-alive": `200 {"status":"alive"}`,
	} {
		res, body := asked(t, dial(t, l), head)
		got := res.Status[:3] + " " + body
		if !strings.HasPrefix(got, want) || !res.Close || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %v", head, got, res.Header)
		}
		if res.StatusCode == 503 && (res.Header.Get("Retry-After") != "1" || res.Header.Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s: %v", head, res.Header)
		}
	}
}

func TestHTTP2IsToldAndLetGo(t *testing.T) {
	l, _, end := begun(t)
	defer end()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Protocols: &protocols}}
	defer client.CloseIdleConnections()
	for range 2 {
		res, err := client.Get("http://" + l.Addr().String() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != 503 || res.ProtoMajor != 2 || !strings.Contains(string(b), `"reasons":["waits for n2"]`) {
			t.Fatalf("%s %s: %s, %v", res.Proto, res.Status, b, err)
		}
	}
}

// Whoever comes is answered by the one or the other: nobody is refused and nobody cut.
func TestTheGatewayTakesOverWithoutACut(t *testing.T) {
	l, s, end := begun(t)
	defer end()
	early := dial(t, l)
	first, _ := asked(t, dial(t, l), "GET / HTTP/1.1") // what comes later is accepted later
	if first.StatusCode != 503 {
		t.Fatal(first.Status)
	}

	ctx, enough := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	over := make(chan struct{}, 4)
	for range cap(over) {
		clients.Go(func() {
			told := sync.OnceFunc(func() { over <- struct{}{} })
			defer told()
			for late := 0; ctx.Err() == nil; {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				res, body, err := askAt(conn, "GET / HTTP/1.1")
				switch {
				case err != nil:
					t.Errorf("after %d answers of the gateway: %v", late, err)
					return
				case res.StatusCode == 503 && res.Close && late == 0:
				case res.StatusCode == 200 && body == "gateway":
					if late++; late == 5 {
						told()
					}
				default:
					t.Errorf("after %d answers of the gateway: %s %s", late, res.Status, body)
					return
				}
			}
		})
	}
	if err := s.HandOver(); err != nil {
		t.Fatal(err)
	}
	if err := s.HandOver(); err != nil { // no harm
		t.Fatal(err)
	}
	waiting := dial(t, l) // before anybody accepts
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "gateway") })}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	if res, body := asked(t, waiting, "GET / HTTP/1.1\r\nConnection: close"); res.StatusCode != 200 || body != "gateway" {
		t.Errorf("one that came in between: %s %s", res.Status, body)
	}
	if res, _ := asked(t, early, "GET / HTTP/1.1"); res.StatusCode != 503 || !res.Close {
		t.Errorf("one that came before and asks only now: %s", res.Status)
	}
	for range cap(over) {
		<-over
	}
	enough()
	clients.Wait()
	_ = server.Close()
	serving.Wait()
}

// A page of another origin is to read that it may come again in a moment, where it may
// call the node at all.
func TestPagesThatMayCallTheNodeCanReadThatItStarts(t *testing.T) {
	l, _, end := begun(t)
	defer end()
	const head = "GET /topics/ HTTP/1.1\r\nOrigin: "
	for page, allowed := range map[string]string{"https://app.example.com": "https://app.example.com", "https://elsewhere.example.com": ""} {
		res, body := asked(t, dial(t, l), head+page)
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != 503 || got != allowed {
			t.Errorf("%s: %d, open to %q: %s", page, res.StatusCode, got, body)
		}
	}
	res, _ := asked(t, dial(t, l), "OPTIONS /topics/ HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\nOrigin: https://app.example.com")
	if res.StatusCode != 204 || !strings.Contains(res.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("asked whether it may: %d, %v", res.StatusCode, res.Header)
	}
}
