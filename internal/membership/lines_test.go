package membership

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheLogTellsOfAFloodAndDoesNotHoldIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &lines{to: slog.New(slog.NewTextHandler(&out, nil))}
		for range 10_000 {
			if _, err := l.Write([]byte("[ERR] memberlist: garbage\n")); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != linesPerMinute {
			t.Errorf("%d lines", n)
		}
		time.Sleep(minute)
		if _, err := l.Write([]byte("[WARN] memberlist: more garbage")); err != nil {
			t.Fatal(err)
		}
		if last := out.String(); !strings.Contains(last, "more garbage") || !strings.Contains(last, "left_out=9980") {
			t.Errorf("the count is missing: %s", last[len(last)-200:])
		}
	})
}
