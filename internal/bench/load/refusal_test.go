package load

import (
	"testing"
	"time"
)

func TestARefusalHasTheServersWords(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"type":"/problems/forbidden","title":"Forbidden","status":403,"detail":"no right to publish","code":"forbidden"}`, "no right to publish (forbidden)"},
		{`{"title":"Forbidden","code":"forbidden"}`, "Forbidden (forbidden)"},
		{"{\"topic\":\"t\",\"offset\":4}\n{\"status\":429,\"code\":\"rate-limited\",\"detail\":\"too fast\"}\n", "too fast (rate-limited)"},
		{"", "Service Unavailable (http-503)"},
		{"<html>", "Service Unavailable: <html> (http-503)"},
	} {
		r := newRefusal(503, time.Second, []byte(c.body))
		if r.Error() != c.want || r.Status != 503 || r.after != time.Second {
			t.Errorf("%q: %v, want %s", c.body, r, c.want)
		}
	}
}
