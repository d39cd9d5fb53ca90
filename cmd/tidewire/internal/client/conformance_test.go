package client

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// The vectors of e2e/conformance, which every client holds to.
func TestStreamsAreReadAsTheVectorsSay(t *testing.T) {
	text, err := os.ReadFile("../../../../e2e/conformance/events.json")
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		Event, Data string
		LastEventID string `json:"last_event_id"`
	}
	var v struct {
		Cases []struct {
			Says, Stream string
			Events       []event
			LastEventID  string `json:"last_event_id"`
		}
	}
	if err := json.Unmarshal(text, &v); err != nil || len(v.Cases) < 5 {
		t.Fatalf("%v, %d cases", err, len(v.Cases))
	}
	for _, c := range v.Cases {
		p := &parser{r: bufio.NewReader(iotest.OneByteReader(strings.NewReader(c.Stream)))}
		var got []event
		for {
			e, err := p.next()
			if err != nil {
				break // the stream has no more
			}
			got = append(got, event{e.Name, string(e.Data), e.ID})
		}
		if !slices.Equal(got, c.Events) || p.lastID != c.LastEventID {
			t.Errorf("%s: %+v, and %q in the end; want %+v and %q", c.Says, got, p.lastID, c.Events, c.LastEventID)
		}
	}
}
