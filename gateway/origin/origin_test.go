package origin_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"tidewire/gateway/origin"
	"tidewire/internal/fault"
)

func TestWhereARequestComesFrom(t *testing.T) {
	p := origin.New([]string{"https://App.example.com/", "https://tide.example"}, "node-1.example:8080")
	for _, c := range []struct {
		host, origin string
		want         origin.Verdict
	}{
		{"evil.example", "", origin.None},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", origin.Own},
		{"[::1]:8080", "http://[::1]:8080", origin.Own},
		{"192.168.1.7", "http://192.168.1.7", origin.Own},
		{"localhost:8080", "http://LocalHost:8080", origin.Own},
		{"node-1.example:8080", "http://node-1.example:8080", origin.Own},
		{"NODE-1.example", "https://node-1.example", origin.Own}, // a proxy ends TLS
		{"tide.example", "http://tide.example", origin.Own},
		{"127.0.0.1:8080", "https://app.EXAMPLE.com", origin.Allowed},
		{"evil.example", "https://app.example.com", origin.Allowed},

		{"evil.example", "http://evil.example", origin.Stranger},
		{"evil.example:8080", "http://evil.example:8080", origin.Stranger},
		{"localhost.evil.example", "http://localhost.evil.example", origin.Stranger},
		{"127.0.0.1.evil.example", "http://127.0.0.1.evil.example", origin.Stranger},
		{"127.1", "http://127.1", origin.Stranger}, // no browser sends it
		{"node-1.example.", "http://node-1.example.", origin.Stranger},

		{"127.0.0.1:8080", "http://127.0.0.1:1", origin.Foreign},
		{"127.0.0.1:8080", "http://localhost:8080", origin.Foreign},
		{"127.0.0.1:8080", "https://evil.example", origin.Foreign},
		{"127.0.0.1:8080", "null", origin.Foreign},
		{"127.0.0.1:8080", "https://app.example.com.evil.example", origin.Foreign},
	} {
		r := httptest.NewRequest("DELETE", "/topics/a", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := p.Judge(r); got != c.want {
			t.Errorf("host %s, origin %q: %d, want %d", c.host, c.origin, got, c.want)
		} else if got >= origin.Foreign {
			if err := origin.Refuse(got, r); !fault.Is(err, fault.Forbidden) || !strings.Contains(err.Error(), "allowed_origins") ||
				strings.Contains(err.Error(), "advertise_http") != (got == origin.Stranger) {
				t.Errorf("host %s, origin %q: %v", c.host, c.origin, err)
			}
		}
	}
}

// What a browser says of a page counts where it sends no Origin, and nothing where it does.
func TestAReadThatDoesMoreNamesItsPage(t *testing.T) {
	p := origin.New([]string{"https://app.example.com"}, "")
	for _, c := range []struct {
		origin, site, referer string
		want                  origin.Verdict
	}{
		{"", "", "", origin.None},
		{"", "none", "", origin.None},
		{"", "same-origin", "https://evil.example/", origin.None},
		{"", "cross-site", "", origin.Foreign},
		{"", "same-site", "", origin.Foreign},
		{"", "cross-site", "http://127.0.0.1:8080/", origin.Foreign},
		{"", "", "http://127.0.0.1:8080/groups", origin.None},
		{"", "", "http://evil.example/", origin.Foreign},
		{"", "", "https://app.example.com/page", origin.None},
		{"", "", "::", origin.None},
		{"https://app.example.com", "cross-site", "", origin.Allowed},
		{"http://127.0.0.1:8080", "", "http://evil.example/", origin.Own},
		{"https://evil.example", "same-origin", "", origin.Foreign},
	} {
		r := httptest.NewRequest("GET", "/groups/a/b/messages", nil)
		r.Host = "127.0.0.1:8080"
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site, "Referer": c.referer} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := p.JudgeRead(r); got != c.want {
			t.Errorf("%+v: %d", c, got)
		} else if err := origin.Refuse(got, r); got == origin.Foreign && (!fault.Is(err, fault.Forbidden) || !strings.Contains(err.Error(), "allowed_origins")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
