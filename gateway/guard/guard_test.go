package guard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

const key = "a secret of tests, longer than 32 bytes"

func newGuard() *Guard { return New(Config{Verifier: &access.Verifier{Key: []byte(key)}}) }

func token(t *testing.T, sub string, lasts time.Duration) string {
	t.Helper()
	s, err := access.Mint([]byte(key), access.Claims{Subject: sub, From: time.Now(), Until: time.Now().Add(lasts), Topics: map[access.Right][]string{access.Subscribe: {"*"}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A rate sees no increase in a series that begins at 1.
func TestWhatIsCountedIsThereFromTheStart(t *testing.T) {
	series := func(v *access.Verifier) map[string]bool {
		reg, all := prometheus.NewRegistry(), map[string]bool{}
		New(Config{Verifier: v, Registerer: reg})
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := ""
				for _, l := range m.GetLabel() {
					name += l.GetValue() + " "
				}
				all[name] = true
			}
		}
		return all
	}
	asked := series(&access.Verifier{Key: []byte(key)})
	for _, want := range []string{"expired http ", "missing sse ", "publish websocket ", "admin http ", "origin sse ", "other http ", "max_publish_rate http ", "max_connections sse "} {
		if !asked[want] {
			t.Errorf("no %q", want)
		}
	}
	if open := series(nil); open["expired http "] || !open["origin http "] {
		t.Errorf("a guard that asks nobody: %v", open)
	}
}

func TestATicketIsGoodOnceAndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		ann, err := g.Token(token(t, "ann", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		one, until, err := g.Ticket(ann)
		if err != nil || time.Until(until) != TicketTime {
			t.Fatal(until, err)
		}
		if got, err := g.Redeem(one); err != nil || got != ann {
			t.Fatal(got, err)
		}
		late, _, _ := g.Ticket(ann)
		time.Sleep(TicketTime)
		for _, text := range []string{one, late, "", "nonsense"} {
			if _, err := g.Redeem(text); access.ReasonOf(err) != access.BadTicket || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
		}
		short, err := g.Token(token(t, "ann", 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		text, until, _ := g.Ticket(short)
		if !until.Equal(short.Expires) {
			t.Errorf("outlives its token: %s", until)
		}
		time.Sleep(10 * time.Second)
		if _, err := g.Redeem(text); err == nil {
			t.Error("a ticket outlived its token")
		}
	})
}

func TestTicketsAreBoundedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		grants := make([]*access.Grant, maxTickets/maxTicketsEach+1)
		for i := range grants {
			grants[i] = &access.Grant{Principal: fmt.Sprint(i)}
		}
		fill := func(g *Guard, who *access.Grant, n int) (last string) {
			for range n {
				text, _, err := g.Ticket(who)
				if err != nil {
					t.Fatal(err)
				}
				last = text
			}
			return last
		}
		one := fill(g, grants[0], maxTicketsEach)
		if _, _, err := g.Ticket(grants[0]); !fault.Is(err, fault.Limit) {
			t.Errorf("one more of a principal: %v", err)
		}
		if _, err := g.Redeem(one); err != nil {
			t.Fatal(err)
		}
		fill(g, grants[0], 1) // a used one makes room
		for _, who := range grants[1 : len(grants)-1] {
			fill(g, who, maxTicketsEach)
		}
		if _, _, err := g.Ticket(grants[len(grants)-1]); !fault.Is(err, fault.Limit) {
			t.Errorf("one more of the node: %v", err)
		}
		time.Sleep(TicketTime)
		fill(g, grants[0], 1)
		if n := g.tickets.count(); n != 1 || len(g.tickets.each) != 1 || len(g.tickets.order) != 1 {
			t.Errorf("%v are left", n)
		}
	})
}

func TestWhereARequestSaysWhoItIs(t *testing.T) {
	g := newGuard()
	ann, bob := token(t, "ann", time.Hour), token(t, "bob", time.Hour)
	everywhere := Places{Ticket: true, Subprotocol: true, Cookie: true}
	grant, err := g.Token(ann)
	if err != nil {
		t.Fatal(err)
	}
	ticket := func() string { s, _, _ := g.Ticket(grant); return s }
	for name, c := range map[string]struct {
		query  string
		header http.Header
		from   Places
		who    string
		code   string
	}{
		"nothing":                    {"", nil, everywhere, "", "missing"},
		"a header":                   {"", http.Header{"Authorization": {"Bearer " + ann}}, Places{}, "ann", ""},
		"a header of another scheme": {"", http.Header{"Authorization": {"Basic " + ann}}, everywhere, "", "missing"},
		"the header wins":            {"", http.Header{"Authorization": {"Bearer " + bob}, "Cookie": {Cookie + "=" + ann}}, everywhere, "bob", ""},
		"a bad header wins too":      {"", http.Header{"Authorization": {"Bearer x"}, "Cookie": {Cookie + "=" + ann}}, everywhere, "", "malformed"},
		"a subprotocol":              {"", http.Header{"Sec-Websocket-Protocol": {"tidewire.v1.json, Bearer." + ann}}, everywhere, "ann", ""},
		"a subprotocol elsewhere":    {"", http.Header{"Sec-Websocket-Protocol": {"bearer." + ann}}, Places{}, "", "missing"},
		"a cookie":                   {"", http.Header{"Cookie": {"a=b; " + Cookie + "=" + ann}}, everywhere, "ann", ""},
		"a cookie of a foreign page": {"", http.Header{"Cookie": {Cookie + "=" + ann}}, Places{Ticket: true}, "", "missing"},
		"a ticket":                   {"a=1&ticket=" + ticket(), nil, everywhere, "ann", ""},
		"a ticket elsewhere":         {"ticket=" + ticket(), nil, Places{}, "", "missing"},
		"a ticket and a header":      {"ticket=" + ticket(), http.Header{"Authorization": {"Bearer " + ann}}, everywhere, "", "invalid"},
		"a query that is none":       {"ticket=%zz", nil, everywhere, "", "missing"},
		"a token in the query":       {"token=" + ann, nil, everywhere, "", "missing"},
	} {
		r := httptest.NewRequest("GET", "/x?"+c.query, nil)
		for k, v := range c.header {
			r.Header[k] = v
		}
		out, got, err := g.Request(r, c.from)
		code := string(access.ReasonOf(err))
		if err != nil && code == "" {
			code = fault.KindOf(err).Code()
		}
		if code != c.code || got != nil && got.Principal != c.who || (got == nil) != (c.who == "") {
			t.Errorf("%s: %v %v", name, got, err)
		}
		if strings.HasPrefix(name, "a ticket") && c.who != "" && (out.URL.RawQuery != "a=1" || out.RequestURI != "/x?a=1") {
			t.Errorf("%s: the query is left: %s %s", name, out.URL, out.RequestURI)
		}
	}
}

func TestAProvenTokenIsRememberedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		text := token(t, "ann", time.Minute)
		first, err := g.Token(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := g.Token(text); err != nil || again != first {
			t.Errorf("proven again: %v", err)
		}
		if _, err := g.Token(text + "A"); err == nil {
			t.Error("another token is taken for it")
		}
		for i := range 3 * generationTokens {
			if _, err := g.Token(token(t, fmt.Sprint(i), time.Hour)); err != nil {
				t.Fatal(err)
			}
			if i%generationTokens == 0 {
				if again, _ := g.Token(text); again != first {
					t.Error("one in use was forgotten")
				}
			}
		}
		if n := len(g.proven.young) + len(g.proven.old); n > 2*generationTokens {
			t.Errorf("%d are remembered", n)
		}
		time.Sleep(time.Minute)
		if _, err := g.Token(text); access.ReasonOf(err) != access.TooLate {
			t.Errorf("after its end: %v", err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	g := newGuard()
	text, err := access.Mint([]byte(key), access.Claims{Subject: "ann", From: time.Now(), Until: time.Now().Add(time.Hour), Topics: map[access.Right][]string{access.Publish: {"orders.*"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Token(text); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAnOpenGuardTakesNoTokens(t *testing.T) {
	g := New(Config{})
	if _, grant, err := g.Request(httptest.NewRequest("GET", "/", nil), Places{}); err != nil || grant.Admin() != nil {
		t.Errorf("%v %v", grant, err)
	}
	for _, err := range []error{second(g.Token("x")), second(g.Redeem("x"))} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
	}
}

func second(_ *access.Grant, err error) error { return err }

// FuzzAuthorization holds that nothing in a header makes a request somebody's,
// and that nothing panics.
func FuzzAuthorization(f *testing.F) {
	f.Add("Bearer a.b.c", "tidewire.v1.json, bearer.x", "tidewire_token=a.b.c", "ticket=x&ticket")
	g := newGuard()
	f.Fuzz(func(t *testing.T, authorization, protocol, cookie, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header = http.Header{"Authorization": {authorization}, "Sec-Websocket-Protocol": {protocol}, "Cookie": {cookie}}
		r.URL.RawQuery = query
		if _, grant, err := g.Request(r, Places{Ticket: true, Subprotocol: true, Cookie: true}); err == nil || grant != nil {
			t.Fatalf("%v", grant)
		}
	})
}
