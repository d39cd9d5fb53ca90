package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"tidewire/gateway/deliver"
	"tidewire/gateway/publish"
	"tidewire/internal/fault"
)

// bare is an API without a server in between.
func bare(t testing.TB) (*API, *memory) {
	m := newMemory()
	_, _, groups := groupsOver(m)
	api := New(Config{
		Topology: m, Control: m, Nodes: m.nodes(), Groups: groups,
		Publisher: publish.New(publish.Config{Topology: m, Leader: m}),
		Reader:    deliver.New(deliver.Config{Source: m, Topology: m}),
		Streams:   noStreams{},
	})
	if w := serve(api, "POST", "/topics/", `{"name":"t","partitions":2,"max_message_bytes":1024}`); w.Code != http.StatusCreated {
		t.Fatal(w.Body)
	}
	return api, m
}

// noStreams ends a stream where it would begin.
type noStreams struct{}

func (noStreams) Admit() error { return nil }

func (noStreams) Serve(w http.ResponseWriter, _ *http.Request, _ deliver.Start) error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// sane holds an answer against what every answer promises.
func sane(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code < 300 {
		return
	}
	var p struct{ Code, Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d: %v in %q", w.Code, err, w.Body)
	}
	kind, ok := fault.ByCode(p.Code)
	if !ok || kind.Status() != w.Code || p.Detail == "" || w.Code >= 500 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
}

// FuzzQuery: no query makes anything but an answer or a 4xx problem.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"limit=1&wait=0s", "cursor=x&after=0:1,1:2", "offset=earliest&partition=0", "at=2026-01-31T15:04:05Z&partition=1", "from=latest&key=a",
		"key_prefix=%F0%9F", "a=1;b=2", "%zz", "limit=+1", "partition=4294967296", "last_event_id=AQ", "&&=&", "offset=9007199254740992&partition=0",
	} {
		f.Add(q)
	}
	api, _ := bare(f)
	gone, cancel := context.WithCancel(context.Background())
	cancel() // a poll that would wait does not
	f.Fuzz(func(t *testing.T, q string) {
		for _, path := range []string{"/topics/t", "/topics/t/events", "/topics/"} {
			r := httptest.NewRequestWithContext(gone, "GET", path, nil)
			r.URL = &url.URL{Path: path, RawQuery: q}
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			sane(t, w)
		}
	})
}

// FuzzPath: nor does any path, by any method.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/topics/t", "/topics/%2F", "/topics//metadata", "//", "/problems/%00", "/nodes/..", "/%", "/subscriptions/AQ/events", "/groups/a/b"} {
		f.Add("GET", p)
		f.Add("DELETE", p)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" {
			return
		}
		api, _ := bare(t)
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL = method, u
		if u.Path == "/ws" {
			return // of somebody else
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		sane(t, w)
	})
}

// FuzzProduce: whatever a client says of a record, it is kept as sent or
// refused by a problem.
func FuzzProduce(f *testing.F) {
	f.Add("", "application/json", "Tidewire-Key", "a", `{"a":1}`)
	f.Add("partition=0", "", "Tidewire-H-X", "\xff", "text")
	f.Add("acks=none", "application/x-ndjson", "Idempotency-Key", "i", "{\"value\":1}\n")
	f.Add("key=a&timeout=1s", "text/plain; charset=\"", "Tidewire-Tombstone", "true", "")
	f.Add("partition=1", "application/json;charset=utf-16", "Tidewire-Sequence", "0", "1")
	f.Fuzz(func(t *testing.T, q, contentType, name, value, body string) {
		api, m := bare(t)
		r := httptest.NewRequest("POST", "/topics/t", strings.NewReader(body))
		r.URL.RawQuery = q
		r.Header.Set("Content-Type", contentType)
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code == http.StatusMultiStatus {
			return // each line has its own answer; see FuzzLines
		}
		sane(t, w)
		kept := append(m.values("t", 0), m.values("t", 1)...)
		switch {
		case w.Code >= 300 && len(kept) > 0:
			t.Fatalf("status %d, but kept %q", w.Code, kept)
		case w.Code < 300 && r.Header.Get("Content-Type") != ndjsonType && (len(kept) != 1 || kept[0] != body):
			if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), ndjsonType) {
				t.Fatalf("status %d: sent %q, kept %q", w.Code, body, kept)
			}
		}
	})
}

// FuzzSettings: no settings make a topic that they do not describe.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		`{"name":"a"}`, `{"name":"a","partitions":3,"retention":{"age":"1h30m","bytes":65536}}`, `{"name":"a","durability":"fsync","unclean":true}`,
		`{"name":"a","idempotency_window":"1.5s","max_message_bytes":4096,"compaction":false,"replicas":1,"min_insync":1}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		api, _ := bare(t)
		w := serve(api, "POST", "/topics/", body)
		sane(t, w)
		if w.Code != http.StatusCreated {
			return
		}
		var asked, made map[string]any
		if err := json.Unmarshal([]byte(body), &asked); err != nil {
			t.Fatalf("created from %q: %v", body, err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || made["name"] != asked["name"] {
			t.Fatalf("asked for %q, made %s (%v)", body, w.Body, err)
		}
		// The description says the same again.
		delete(made, "id")
		delete(made, "created")
		delete(made, "layout")
		same, _ := json.Marshal(made)
		if w := serve(api, "POST", "/topics/", string(same)); w.Code != http.StatusOK {
			t.Fatalf("%s again: status %d: %s", same, w.Code, w.Body)
		}
	})
}

// FuzzLines holds the reader of lines against a dumb twin, however the body
// arrives.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint16(2))
	f.Add([]byte("\n"), uint16(1))
	f.Add([]byte("fifteen bytes..\nsixteen bytes...\nand more than any of these\n"), uint16(16))
	f.Add(append(bytes.Repeat([]byte("x"), 100), "\nyy\n"...), uint16(99))
	f.Add(append(bytes.Repeat([]byte("x"), 100), "\nyy\n"...), uint16(100))
	f.Fuzz(func(t *testing.T, body []byte, most uint16) {
		parts := bytes.Split(body, []byte("\n"))
		if len(parts[len(parts)-1]) == 0 {
			parts = parts[:len(parts)-1]
		}
		broken := errors.New("broken")
		for name, in := range map[string]*lineReader{
			"whole":  newLineReader(bytes.NewReader(body), int(most), 16),
			"halves": newLineReader(iotest.HalfReader(bytes.NewReader(body)), int(most), 16),
			"cut":    newLineReader(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(broken)), int(most), 16),
		} {
			for i, want := range parts {
				line, _, err := in.next()
				switch {
				case name == "cut" && i == len(parts)-1 && body[len(body)-1] != '\n':
					if err != broken {
						t.Fatalf("%s: line %d was cut, got %q, %v", name, i, line, err)
					}
				case len(want) > int(most):
					if err != errLineTooLong {
						t.Fatalf("%s: line %d of %d bytes: %v", name, i, len(want), err)
					}
				case err != nil || !bytes.Equal(line, want):
					t.Fatalf("%s: line %d is %q, want %q (%v)", name, i, line, want, err)
				}
			}
			if _, partial, err := in.next(); name != "cut" && err != io.EOF || err == nil || partial && len(parts) == 0 {
				t.Fatalf("%s: after the last line: %v", name, err)
			}
			if cap(in.long) > 2*(int(most)+64) {
				t.Fatalf("%s: %d bytes held for lines of %d", name, cap(in.long), most)
			}
		}
	})
}
