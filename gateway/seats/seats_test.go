package seats

import (
	"net/http/httptest"
	"testing"

	"tidewire/internal/fault"
)

// Where the node is full another may do it (503); where an address holds too many
// it is the caller's own doing (429).
func TestWhoIsRefusedIsToldWhoseLimitItIs(t *testing.T) {
	for limit, c := range map[string]struct{ most, perIP, status int }{
		"max_connections":        {1, 0, 503},
		"max_connections_per_ip": {0, 1, 429},
	} {
		s := New(c.most, c.perIP, 0, nil)
		if _, err := s.Take(httptest.NewRequest("GET", "/", nil)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Take(httptest.NewRequest("GET", "/", nil))
		if f := fault.As(err); err == nil || f.Kind != fault.Limit || f.Status() != c.status || f.Fields["limit"] != limit {
			t.Errorf("%s: %+v", limit, f)
		}
	}
}
