// Package guard asks who is calling. It takes the token or ticket out of a
// request, lets gateway/access judge it, fetches the keys that an issuer publishes,
// keeps the tickets of this node, and counts and logs whom it turned away. What a caller may do is asked of the Grant
// that comes out of here.
//
// A guard without a key asks nobody: everyone gets a Grant of everything, and a
// token is refused, so that its sender does not believe that it counts.
package guard

import (
	"cmp"
	"crypto"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
	"tidewire/internal/obs"
)

// Config of a Guard. A zero field means its default.
type Config struct {
	Verifier   *access.Verifier      // nil: nobody is asked
	KeysURL    string                // where more of its public keys are published; "": nowhere
	Registerer prometheus.Registerer // nil: nothing is counted in public
	Logger     *slog.Logger
}

// Guard knows its callers. It is safe for concurrent use.
type Guard struct {
	verifier  atomic.Pointer[access.Verifier] // with the keys that were published last; nil: nobody is asked
	published *published                      // nil: there are none
	everyone  *access.Grant
	proven    proven
	tickets   *tickets
	refused   *prometheus.CounterVec // transport, reason
	limited   *prometheus.CounterVec // transport, limit
	log       *slog.Logger
	aloud     *rate.Limiter // of the log
}

// New makes a Guard.
func New(cfg Config) *Guard {
	auto := promauto.With(cfg.Registerer)
	g := &Guard{
		everyone: access.Everyone(), tickets: newTickets(),
		log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		// Whoever guesses tokens must not fill the disk with it.
		aloud: rate.NewLimiter(1, 20),
	}
	g.verifier.Store(cfg.Verifier)
	if cfg.Verifier != nil && cfg.KeysURL != "" {
		g.published = newPublished(cfg.KeysURL, func(keys []crypto.PublicKey) {
			v := *cfg.Verifier
			v.Public = slices.Concat(v.Public, keys)
			g.verifier.Store(&v)
			g.proven.forget(&v) // a key that was withdrawn proves nothing any more
		}, g.log, cfg.Registerer)
	}
	g.refused, g.limited = newCounters(cfg.Registerer, !g.Open())
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "gateway_tickets", Help: "Tickets that were issued and are neither used nor over."}, g.tickets.count)
	return g
}

// Open reports whether nobody is asked who they are.
func (g *Guard) Open() bool { return g.verifier.Load() == nil }

// Everyone is the grant of a guard that is open.
func (g *Guard) Everyone() *access.Grant {
	if !g.Open() {
		return nil
	}
	return g.everyone
}

// Token is what a token grants now. Where keys are published it may wait for newer
// ones, a few seconds at most.
func (g *Guard) Token(token string) (*access.Grant, error) {
	if g.Open() {
		return nil, fault.New(fault.Invalid, "this node takes no tokens: it has no auth_key_file; leave the token out").With("field", "token")
	}
	grant, err := g.prove(token)
	if err == nil || g.published == nil || !unknownKey(err) {
		return grant, err
	}
	if g.published.newer() {
		grant, err = g.prove(token)
	}
	if absent := g.published.absent(); absent != nil && unknownKey(err) {
		return nil, absent // nobody can say that it is bad
	}
	return grant, err
}

func (g *Guard) prove(token string) (*access.Grant, error) {
	now, v := time.Now(), g.verifier.Load()
	if len(token) > access.MaxTokenBytes {
		return v.Verify(token, now)
	}
	d, grant := g.proven.find(token, now)
	if grant != nil {
		return grant, nil
	}
	grant, err := v.Verify(token, now)
	if err == nil {
		g.proven.keep(d, grant, v)
	}
	return grant, err
}

// Refused is told of every refusal. It counts those at a limit, and counts and
// logs those for who the caller is. transport is asked for when it is needed.
func (g *Guard) Refused(transport func() string, address string, caller *access.Grant, err error) {
	if k := fault.KindOf(err); k == fault.Limit || k == fault.Throttled {
		if limit, ok := fault.As(err).Fields["limit"].(string); ok { // one of our own words
			g.limited.WithLabelValues(transport(), limit).Inc()
		}
		return
	}
	reason := reasonOf(err)
	if reason == "" {
		return
	}
	over := transport()
	g.refused.WithLabelValues(over, reason).Inc()
	if !g.aloud.Allow() {
		return
	}
	attrs := []any{"transport", over, obs.Address, address, "reason", reason}
	if caller != nil && caller.Asked() {
		attrs = append(attrs, "principal", caller.Principal)
	}
	if topic, ok := fault.As(err).Fields["topic"].(string); ok {
		attrs = append(attrs, obs.Topic, topic)
	}
	g.log.Info("refused a caller", attrs...)
}

// reasonOf is a word of a short list: what stands in a label is no client's choice.
func reasonOf(err error) string {
	switch {
	case fault.Is(err, fault.Unauthorized):
		return cmp.Or(string(access.ReasonOf(err)), otherReason)
	case !fault.Is(err, fault.Forbidden):
		return ""
	}
	fields := fault.As(err).Fields
	if right, ok := fields["right"].(string); ok {
		return right
	}
	if _, ok := fields["origin"]; ok {
		return foreignOrigin
	}
	return otherReason
}
