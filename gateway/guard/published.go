package guard

import (
	"context"
	"crypto"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
	"tidewire/internal/obs"
	"tidewire/internal/sleep"
)

const (
	// fetchEvery is how old keys get: for so long one that its issuer has withdrawn
	// is still taken.
	fetchEvery = 5 * time.Minute
	// fetchPause is the least time between two fetches, so that tokens that are made
	// up keep nobody busy, and the pause after one that failed.
	fetchPause = 5 * time.Second
	// fetchTime bounds one fetch.
	fetchTime = 3 * time.Second
	// maxSetBytes bounds what is fetched.
	maxSetBytes = 1 << 20
)

// published are the keys that an issuer publishes at a URL. A set that cannot be
// fetched leaves the one before as it is.
type published struct {
	url     string
	client  *http.Client
	install func([]crypto.PublicKey)
	log     *slog.Logger
	fetches *prometheus.CounterVec // outcome
	wake    chan struct{}          // holds a token where somebody wants newer keys

	mu     sync.Mutex
	keys   []crypto.PublicKey // nil: none were had yet
	landed chan struct{}      // closed when the fetch ends that is under way, or comes next
	began  time.Time          // of the latest fetch
	flying bool
	failed bool // the latest fetch
}

func newPublished(url string, install func([]crypto.PublicKey), log *slog.Logger, reg prometheus.Registerer) *published {
	p := &published{
		url: url, install: install, log: log, wake: make(chan struct{}, 1), landed: make(chan struct{}),
		client: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
			// Where keys come from is said by the operator alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		fetches: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_token_key_fetches_total", Help: "Fetches of the keys of tokens from auth_jwks_url, by outcome.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{"fetched", "failed"} {
		p.fetches.WithLabelValues(outcome)
	}
	return p
}

// run fetches the keys now and then until ctx ends.
func (p *published) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		p.mu.Lock()
		p.began, p.flying = began, true
		p.mu.Unlock()
		keys, err := p.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		p.land(keys, err)
		select {
		case <-p.wake: // who asked for this one has it
		default:
		}
		if !sleep.For(ctx, fetchPause-time.Since(began)) || err != nil {
			continue
		}
		due := time.NewTimer(fetchEvery - fetchPause)
		select {
		case <-ctx.Done():
		case <-due.C:
		case <-p.wake:
		}
		due.Stop()
	}
}

// land tells of a fetch that has ended. Keys that it brought are installed before
// anybody who waited for them goes on.
func (p *published) land(keys []crypto.PublicKey, err error) {
	p.mu.Lock()
	changed := err == nil && !reflect.DeepEqual(keys, p.keys)
	news := changed || p.failed != (err != nil)
	p.mu.Unlock()
	outcome := "fetched"
	if err != nil {
		outcome = "failed"
	}
	p.fetches.WithLabelValues(outcome).Inc()
	switch {
	case news && err != nil:
		p.log.Warn("the keys of tokens cannot be fetched; those that were had before count on", "url", p.url, obs.Err, err)
	case news:
		p.log.Info("fetched the keys of tokens", "url", p.url, "keys", len(keys))
	}
	if changed {
		p.install(keys)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flying, p.failed = false, err != nil; changed {
		p.keys = keys
	}
	close(p.landed)
	p.landed = make(chan struct{})
}

func (p *published) fetch(ctx context.Context) ([]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSetBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSetBytes {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxSetBytes)
	}
	return access.KeySet(b)
}

// newer waits for a fetch, if one is under way or may be made. It says whether there
// was one.
func (p *published) newer() bool {
	p.mu.Lock()
	landed := p.landed
	soon := p.flying || time.Since(p.began) >= fetchPause
	p.mu.Unlock()
	if !soon {
		return false
	}
	select {
	case p.wake <- struct{}{}:
	default: // somebody has asked for it
	}
	limit := time.NewTimer(fetchTime + time.Second)
	defer limit.Stop()
	select {
	case <-landed:
		return true
	case <-limit.C:
		return false
	}
}

// absent is why no token can be judged; nil: it can.
func (p *published) absent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys != nil {
		return nil
	}
	return fault.New(fault.Draining, "the keys of tokens have not been fetched yet (auth_jwks_url); the log says what is in the way").After(time.Second)
}

// unknownKey: fresh keys may prove what these do not.
func unknownKey(err error) bool {
	r := access.ReasonOf(err)
	return r == access.Signature || r == access.Algorithm
}

// Run keeps the keys of tokens up to date until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	if g.published != nil {
		g.published.run(ctx)
	}
	return nil
}

// NotReady is why the guard can let nobody in; nil: it can.
func (g *Guard) NotReady() error {
	if g.published == nil {
		return nil
	}
	return g.published.absent()
}
