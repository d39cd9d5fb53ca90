package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"tidewire/gateway/budget"
	"tidewire/gateway/deliver"
	"tidewire/gateway/publish"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memnet"
)

const heldTestBytes = 32 << 20

// underBudget serves topic t, of 2 MB in records of 20 KB, in virtual time,
// with a budget of 32 MiB.
func underBudget(t *testing.T, test func(t *testing.T, m *memory, p pipes, api *API)) {
	synctest.Test(t, func(t *testing.T) {
		m, held := newMemory(), budget.New(heldTestBytes)
		hub := deliver.New(deliver.Config{Source: m, Topology: m, Held: held})
		api := New(Config{
			Topology: m, Control: m, Nodes: m.nodes(), Reader: hub, Held: held,
			Publisher: publish.New(publish.Config{Topology: m, Leader: m}),
		})
		if w := serve(api, "POST", "/topics/", `{"name":"t","max_message_bytes":16777216}`); w.Code != http.StatusCreated {
			t.Fatal(w.Body)
		}
		for range 100 {
			if w := serve(api, "POST", "/topics/t", `"`+strings.Repeat("x", 20_000)+`"`); w.Code != http.StatusCreated {
				t.Fatal(w.Body)
			}
		}
		if n := held.Held(); n != 0 {
			t.Fatalf("%d bytes are held of calls that have ended", n)
		}
		server, p := NewServer(api), pipes{memnet.Listen()}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Serve(Patient(p)); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		test(t, m, p, api)
		server.Close()
		serving.Wait()
		time.Sleep(heldPatience + writeTimeout) // what is under way ends by itself
		synctest.Wait()
		if n := held.Held(); n != 0 {
			t.Errorf("%d bytes are held of nothing", n)
		}
	})
}

// goesOn holds that a call that needs little is served.
func goesOn(t *testing.T, api *API) {
	t.Helper()
	if w := serve(api, "GET", "/topics/t?limit=1", ""); w.Code != http.StatusOK {
		t.Errorf("a small poll: %d %s", w.Code, w.Body)
	}
	if w := serve(api, "POST", "/topics/t", `"small"`); w.Code != http.StatusCreated {
		t.Errorf("a small record: %d %s", w.Code, w.Body)
	}
	if w := serve(api, "GET", "/topics/", ""); w.Code != http.StatusOK {
		t.Errorf("the list of topics: %d %s", w.Code, w.Body)
	}
}

func TestPollsThatNobodyReadsHoldTheBudgetAtMost(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		conn := p.dial()
		frames := http2.NewFramer(conn, conn)
		var streams, reset, refused int
		var mu sync.Mutex
		var reading sync.WaitGroup
		reading.Go(func() {
			for {
				f, err := frames.ReadFrame()
				if err != nil {
					return
				}
				mu.Lock()
				if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
					if v, ok := s.Value(http2.SettingMaxConcurrentStreams); ok {
						streams = int(v)
					}
				}
				if r, ok := f.(*http2.RSTStreamFrame); ok {
					if reset++; r.ErrCode == http2.ErrCodeRefusedStream {
						refused++
					}
				}
				mu.Unlock()
			}
		})
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		var head bytes.Buffer
		enc := hpack.NewEncoder(&head)
		began := time.Now()
		const polls = 100
		for i := range uint32(polls) {
			head.Reset()
			for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/topics/t?max_bytes=16777216&limit=10000"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			if err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := api.cfg.Held.Held(); n < heldTestBytes/2 || n > heldTestBytes {
			t.Errorf("%d polls hold %d bytes, the budget is %d", polls, n, heldTestBytes)
		}
		goesOn(t, api)
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if n := api.cfg.Held.Held(); n != 0 || reset-refused != polls {
			t.Errorf("%s later: %d bytes held, %d streams ended", time.Since(began), n, reset-refused)
		}
		if streams != streamsPerConnection {
			t.Errorf("%d streams are offered", streams)
		}
		conn.Close()
		mu.Unlock()
		reading.Wait()
		mu.Lock()
	})
}

// The same over HTTP/1.1, where each poll has a connection.
func TestPollsThatNobodyReadsAreLeft(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		var conns []net.Conn
		for range 60 {
			conn := p.dial()
			defer conn.Close()
			fmt.Fprintf(conn, "GET /topics/t?max_bytes=16777216&limit=10000 HTTP/1.1\r\nHost: x\r\n\r\n")
			conns = append(conns, conn)
		}
		synctest.Wait()
		if n := api.cfg.Held.Held(); n < heldTestBytes/2 || n > heldTestBytes {
			t.Errorf("%d polls hold %d bytes, the budget is %d", len(conns), n, heldTestBytes)
		}
		goesOn(t, api)
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if n := api.cfg.Held.Held(); n != 0 {
			t.Errorf("%d bytes are held %s later", n, writeTimeout)
		}
	})
}

// What a poll holds is what it has, and goes as it is written.
func TestAPollHoldsWhatItHas(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		conn := p.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "GET /topics/t?max_bytes=16777216&limit=3 HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		if n := api.cfg.Held.Held(); n < 60_000 || n > 200_000 {
			t.Errorf("a poll of 60 KB holds %d bytes", n)
		}
		conn = p.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "GET /topics/t?max_bytes=16777216&limit=10000 HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		before := api.cfg.Held.Held()
		if _, err := io.CopyN(io.Discard, conn, 1<<20); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after := api.cfg.Held.Held(); before-after < 500_000 {
			t.Errorf("%d bytes held, and %d after 1 MiB was read", before, after)
		}
	})
}

// Bodies that never come to their end.
func TestBodiesHoldTheBudgetAtMost(t *testing.T) {
	for _, kind := range []string{"Content-Type: text/plain\r\nContent-Length: 2000000", "Content-Type: application/x-ndjson\r\nContent-Length: 2000000"} {
		underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
			var sending sync.WaitGroup
			answers := make(chan string, 40)
			var conns []net.Conn
			for range 40 {
				conn := p.dial()
				conns = append(conns, conn)
				fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", kind)
				sending.Go(func() { _, _ = io.WriteString(conn, strings.Repeat("x", 1_900_000)) })
				sending.Go(func() {
					b, _ := io.ReadAll(conn)
					answers <- string(b)
				})
			}
			synctest.Wait()
			if n := api.cfg.Held.Held(); n < heldTestBytes/4 || n > heldTestBytes {
				t.Errorf("40 bodies of 2 MB hold %d bytes, the budget is %d", n, heldTestBytes)
			}
			goesOn(t, api)
			time.Sleep(heldPatience + unreadTime + time.Second)
			throttled := 0
			for range len(answers) {
				if a := <-answers; strings.Contains(a, "throttled") && strings.Contains(a, "Retry-After") == strings.Contains(kind, "plain") {
					throttled++
				}
			}
			if throttled == 0 {
				t.Error("nobody was told to come again")
			}
			for _, conn := range conns {
				conn.Close()
			}
			sending.Wait()
		})
	}
}

// Refused lines whose answers nobody reads.
func TestAnswersOfLinesHoldTheBudgetAtMost(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		var sending sync.WaitGroup
		var conns []net.Conn
		for range 8 {
			conn := p.dial()
			conns = append(conns, conn)
			fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 200000\r\n\r\n")
			sending.Go(func() { _, _ = io.WriteString(conn, strings.Repeat("x\n", 100_000)) })
		}
		synctest.Wait()
		if n := api.cfg.Held.Held(); n < heldTestBytes/4 || n > heldTestBytes {
			t.Errorf("answers hold %d bytes, the budget is %d", n, heldTestBytes)
		}
		goesOn(t, api)
		for _, conn := range conns {
			conn.Close()
		}
		sending.Wait()
	})
}

// A list that is long because the cluster is.
func TestTheListOfTopicsHoldsTheBudgetAtMost(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		for i := range 40 {
			if w := serve(api, "POST", "/topics/", fmt.Sprintf(`{"name":"many-%d","partitions":100}`, i)); w.Code != http.StatusCreated {
				t.Fatal(w.Body)
			}
		}
		whole := serve(api, "GET", "/topics/", "")
		if got := (got{body: whole.Body.Bytes()}).json(t)["topics"].([]any); len(got) != 41 {
			t.Fatalf("%d topics", len(got))
		}
		var conns []net.Conn
		for range 80 {
			conn := p.dial()
			conns = append(conns, conn)
			fmt.Fprintf(conn, "GET /topics/ HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		synctest.Wait()
		if n := api.cfg.Held.Held(); n < heldTestBytes/4 || n > heldTestBytes {
			t.Errorf("80 lists of %d bytes hold %d, the budget is %d", whole.Body.Len(), n, heldTestBytes)
		}
		if w := serve(api, "GET", "/topics/t?limit=1", ""); w.Code != http.StatusOK {
			t.Errorf("a small poll: %d %s", w.Code, w.Body)
		}
		for _, conn := range conns {
			conn.Close()
		}
		synctest.Wait()
	})
}

// One message that is larger than all that is left waits for its turn, and is
// refused if that does not come.
func TestAPollWaitsForRoom(t *testing.T) {
	underBudget(t, func(t *testing.T, m *memory, p pipes, api *API) {
		if w := serve(api, "POST", "/topics/t", `"`+strings.Repeat("y", 1<<20)+`"`); w.Code != http.StatusCreated {
			t.Fatal(w.Body)
		}
		hog := api.cfg.Held.Share()
		if err := hog.Need(t.Context(), heldTestBytes*7/8, time.Second); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/topics/t?offset=%d", ident.Offset(100))
		began := time.Now()
		w := serve(api, "GET", path, "")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || time.Since(began) > 5*time.Second {
			t.Errorf("%d %s after %s", w.Code, w.Body, time.Since(began))
		}
		time.AfterFunc(time.Second, hog.Close)
		began = time.Now()
		if w := serve(api, "GET", path, ""); w.Code != http.StatusOK || time.Since(began) != time.Second {
			t.Errorf("%d after %s", w.Code, time.Since(began))
		}
	})
}
