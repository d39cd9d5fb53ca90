package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

func at(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestProblemsKeepTheServersWords(t *testing.T) {
	c := at(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(503)
		fmt.Fprint(w, `{"type":"/problems/draining","title":"Draining","status":503,"detail":"go away","code":"draining"}`)
	})
	_, err := c.Topics(t.Context())
	var p *Problem
	if !errors.As(err, &p) || p.Code != "draining" || p.RetryAfter != 3*time.Second || !p.Retryable() || p.Error() != "go away (draining)" {
		t.Errorf("got %#v, %v", p, err)
	}
}

func TestAnAnswerOfAnotherServerIsAProblemThatSaysSo(t *testing.T) {
	for _, body := range []string{"<html>", "", `{"detail":"x"}`} {
		c := at(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(404)
			fmt.Fprint(w, body)
		})
		_, err := c.Topic(t.Context(), "t")
		var p *Problem
		if !errors.As(err, &p) || p.Code != "http-404" || !strings.Contains(p.Detail, "right address") {
			t.Errorf("%q: %v", body, err)
		}
	}
	c := at(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") })
	if _, err := c.Topic(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), "not as expected") {
		t.Errorf("got %v", err)
	}
}

func TestNobodyThereIsUnreachable(t *testing.T) {
	c, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	var gone *Unreachable
	if _, _, err := c.Nodes(t.Context()); !errors.As(err, &gone) || !strings.HasPrefix(err.Error(), "http://127.0.0.1:1 cannot be reached") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://x?y=z", "://"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q is taken for a server", bad)
		}
	}
}

func TestNamesStayInsideTheirPath(t *testing.T) {
	var got string
	c := at(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath(); w.WriteHeader(204) })
	for name, want := range map[string]string{"..": "/topics/%2E%2E", "a/b": "/topics/a%2Fb", "a?b": "/topics/a%3Fb", "a.b": "/topics/a%2Eb"} {
		if err := c.DeleteTopic(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestTopicsKeepTheServersOwnFields(t *testing.T) {
	c := at(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"topics":[{"name":"a", "layout":{"partitions":[{"id":0,"hi":4294967296,"leader":null}]}, "new":1}]}`)
	})
	all, err := c.Topics(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "a" || all[0].Layout.Partitions[0].Hi != 1<<32 {
		t.Fatalf("%+v, %v", all, err)
	}
	if want := `{"name":"a","layout":{"partitions":[{"id":0,"hi":4294967296,"leader":null}]},"new":1}`; string(all[0].Raw) != want {
		t.Errorf("got %s", all[0].Raw)
	}
}

// A purge of no partition is not one of all of them: the server is to say that it is a mistake.
func TestAPurgeOfNothingIsNoPurgeOfEverything(t *testing.T) {
	var body string
	c := at(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		fmt.Fprint(w, `{"partitions":[]}`)
	})
	for want, before := range map[string]map[uint32]int64{`{}`: nil, `{"before":{}}`: {}, `{"before":{"1":7}}`: {1: 7}} {
		if _, err := c.PurgeTopic(t.Context(), "orders", before); err != nil || body != want {
			t.Errorf("%v: %s, want %s (%v)", before, body, want, err)
		}
	}
}

func TestResultsThatCameStandWhenTheAnswerBreaksOff(t *testing.T) {
	c := at(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Tidewire-Sequence") != "7" || r.URL.Query().Get("partition") != "2" {
			t.Errorf("called with %v, %v", r.URL, r.Header)
		}
		w.WriteHeader(207)
		fmt.Fprintln(w, `{"topic":"t","partition":2,"offset":5,"duplicate":true}`)
		fmt.Fprintln(w, `{"status":409,"code":"out-of-order-sequence","expected":3}`)
		fmt.Fprint(w, `{"topic":"t","part`)
	})
	res, err := c.Publish(t.Context(), Batch{Topic: "t", Partition: 2, Lines: []byte("1\n2\n3\n"), Count: 3, Acks: "all", Producer: "p", Sequence: 7})
	var gone *Unreachable
	if !errors.As(err, &gone) || len(res) != 2 || res[0].Offset != 5 || !res[0].Duplicate || *res[1].Problem.Expected != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

func events(t interface{ Fatal(...any) }, r io.Reader) (all []Event, p *parser) {
	p = &parser{r: bufio.NewReader(r)}
	for {
		e, err := p.next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return all, p
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func TestStreamsAreReadAsTheirStandardSays(t *testing.T) {
	all, p := events(t, strings.NewReader("\ufeffretry: 250\r\nid: 1\r\n\r\n: comment\r\rdata\rdata:\rdata:  two\r\revent:gap\ndata: x\nid\n\nevent: dropped\n\nid: a\x00b\ndata: y\nunknown: z\n\nid: 2\n\ndata: v\n\ndata: never ended"))
	want := []Event{{"message", []byte("\n\n two"), "1", false}, {"gap", []byte("x"), "", true}, {"message", []byte("y"), "", false}, {"message", []byte("v"), "2", false}}
	if len(all) != len(want) || p.retry != 250*time.Millisecond {
		t.Fatalf("got %d events, retry %s: %+v", len(all), p.retry, all)
	}
	for i, e := range all {
		if e.Name != want[i].Name || string(e.Data) != string(want[i].Data) || e.ID != want[i].ID || e.Named != want[i].Named {
			t.Errorf("event %d: %+v, want %+v", i, e, want[i])
		}
	}
}

// A stream that breaks off anywhere goes on after the last event that came
// whole: the id of one that was cut short does not count.
func TestTheIDOfAnEventThatWasCutShortDoesNotCount(t *testing.T) {
	const text = "id: 1\ndata: a\n\nid: 2\n\nevent: message\nid: 3\ndata: c\n\n"
	for n := range len(text) + 1 {
		want := ""
		for id, end := range map[string]int{"1": 15, "2": 22, "3": len(text)} {
			if n >= end {
				want = max(want, id)
			}
		}
		if _, p := events(t, strings.NewReader(text[:n])); p.lastID != want {
			t.Errorf("cut at %d: the last id is %q, want %q", n, p.lastID, want)
		}
	}
}

func TestStreamsReadTheSameInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r", "\r\n"}).Draw(t, "end")
		values := rapid.SliceOf(rapid.StringMatching(`[a-zü"{}: ]{0,12}`)).Draw(t, "values")
		var text strings.Builder
		for i, v := range values {
			fmt.Fprintf(&text, "id: %d%sevent: e%sdata: %s%s%s", i, end, end, v, end, end)
		}
		var r io.Reader = strings.NewReader(text.String())
		if rapid.Bool().Draw(t, "byte by byte") {
			r = iotest.OneByteReader(r)
		}
		all, _ := events(t, r)
		if len(all) != len(values) {
			t.Fatalf("%d of %d events", len(all), len(values))
		}
		for i, e := range all {
			if string(e.Data) != values[i] || e.ID != fmt.Sprint(i) || e.Name != "e" {
				t.Fatalf("event %d: %+v, want %q", i, e, values[i])
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("id: 1\ndata: x\n\n"))
	f.Add([]byte("\xef\xbb\xbfdata\r\rretry:9999999999999\n:\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, p := events(t, strings.NewReader(string(b)))
		if p.retry < 0 || strings.ContainsRune(p.lastID, 0) {
			t.Fatalf("retry %s, id %q", p.retry, p.lastID)
		}
		for _, e := range all {
			if e.Name == "" {
				t.Fatal("an event without a name")
			}
		}
	})
}
