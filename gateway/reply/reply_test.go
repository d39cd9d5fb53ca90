package reply

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tidewire/internal/fault"
)

func TestAProblemSaysAll(t *testing.T) {
	w := httptest.NewRecorder()
	HTTP(w, fault.New(fault.Throttled, "too many").With("status", 7).With("limit", 5).After(1500*time.Millisecond))
	if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Retry-After") != "2" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	want := `{"type":"/problems/throttled","title":"Throttled","status":429,"detail":"too many","code":"throttled","limit":5}`
	if got := w.Body.String(); got != want+"\n" {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestWhatNobodyClassifiedStaysInTheLog(t *testing.T) {
	p := string(Problem(errors.New("open /secret/path: permission denied")))
	if strings.Contains(p, "secret") || !strings.Contains(p, `"code":"internal"`) {
		t.Fatal(p)
	}
}

func TestAFrameCarriesTheSameCode(t *testing.T) {
	got := string(FrameFor(3, "s1", fault.New(fault.DiskFull, "no room")))
	want := `{"op":"error","id":3,"sub":"s1","code":"disk-full","title":"Disk full","detail":"no room","retry_after":"1s"}`
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestEveryKindHasAPageAndAWellFormedProblem(t *testing.T) {
	for _, k := range fault.Kinds() {
		page, ok := Page(k.Code())
		if !ok || !strings.Contains(string(page), k.Code()) || !strings.Contains(string(page), `<a href="/">`) || !strings.Contains(string(page), `<a href="/problems/">`) {
			t.Errorf("no page for %s, or no way back from it", k)
		}
		for _, b := range [][]byte{Problem(&fault.Error{Kind: k}), Frame(0, &fault.Error{Kind: k})} {
			if !json.Valid(b) || !strings.Contains(string(b), `"detail":"`) {
				t.Errorf("%s", b)
			}
		}
	}
	if _, ok := Page("nonsense"); ok {
		t.Error("a page for a code that is none")
	}
}

func TestAReasonFitsACloseFrame(t *testing.T) {
	r := Reason(strings.Repeat("é", 100))
	if len(r) > MaxReasonBytes || !utf8.ValidString(r) || Reason("short") != "short" {
		t.Fatalf("%d bytes: %q", len(r), r)
	}
}
