package main

import (
	"strings"
	"testing"
	"time"

	"tidewire/cmd/tidewire/internal/client"
)

func TestTailStartsWhereItIsTold(t *testing.T) {
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name string
		f    tailFlags
		want string
	}{
		{"a page starts at the beginning", tailFlags{partition: -1}, "from=earliest"},
		{"a stream starts at the end", tailFlags{partition: -1, follow: true}, "from=latest"},
		{"so long ago", tailFlags{partition: -1, from: "15m", fromSet: true}, "from=2026-01-31T14%3A49%3A05Z"},
		{"a time", tailFlags{partition: -1, from: "2026-01-01T00:00:00+01:00", fromSet: true}, "from=2026-01-01T00%3A00%3A00%2B01%3A00"},
		{"a cursor", tailFlags{partition: -1, cursor: "abc"}, "cursor=abc"},
		{"one partition by offset", tailFlags{partition: 3}, "offset=earliest&partition=3"},
		{"one partition by time", tailFlags{partition: 3, from: "0s", fromSet: true}, "at=2026-01-31T15%3A04%3A05Z&partition=3"},
		{"a stream of one partition", tailFlags{partition: 3, follow: true, from: "earliest", fromSet: true}, "from=earliest&partition=3"},
		{"a key, even an empty one", tailFlags{partition: -1, keySet: true}, "from=earliest&key="},
	} {
		q, err := tc.f.query(now)
		if err != nil || q.Encode() != tc.want {
			t.Errorf("%s: %s, %v", tc.name, q.Encode(), err)
		}
	}
	if _, err := (tailFlags{partition: -2, limit: -1, from: "-5m", fromSet: true}).query(now); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestValuesAreShownAsAPersonReadsThem(t *testing.T) {
	for _, tc := range [][2]string{
		{`{"value":{"a":1}}`, `{"a":1}`},
		{`{"value":"text\nof two lines"}`, `text\nof two lines`},
		{`{"value":null}`, "null"},
		{`{"value":null,"tombstone":true}`, "(tombstone)"},
		{`{"value_base64":"/wE=","content_type":"image/png\u001b[31m"}`, `(2 bytes of image/png\u001b[31m)`},
		{`{"value_base64":"","content_type":"image/png"}`, "(0 bytes of image/png)"},
	} {
		in, want := tc[0], tc[1]
		m, err := client.ParseMessage([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := valueText(m); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
