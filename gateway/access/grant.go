package access

import (
	"context"
	"time"

	"tidewire/internal/fault"
)

// Grant is what a caller may do, and for how long. It never changes; a nil Grant
// may do nothing.
type Grant struct {
	// Principal is the token's subject; "" where it has none, or where nobody is
	// asked.
	Principal string
	// Expires is the end of the grant; zero: it has none.
	Expires time.Time

	rights rights
	open   bool
}

// Everyone is the grant of a node that asks nobody who they are.
func Everyone() *Grant { return &Grant{open: true} }

// Asked reports whether the caller had to prove who it is.
func (g *Grant) Asked() bool { return g == nil || !g.open }

// May says why the caller may not do something with a topic; nil: it may.
func (g *Grant) May(right Right, topic string) error {
	switch {
	case g == nil:
		return Missing()
	case g.open || g.rights.may(right, topic):
		return nil
	}
	return fault.New(fault.Forbidden, "the token does not give the right %q on topic %q (claim \"tidewire\")", right, clip(topic)).
		With("right", right.String()).With("topic", clip(topic))
}

// Knows says why the caller may not learn how a topic is laid out: that takes
// any right on it.
func (g *Grant) Knows(topic string) error {
	if g.Sees(topic) {
		return nil
	}
	if g == nil {
		return Missing()
	}
	return fault.New(fault.Forbidden, "the token gives no right on topic %q (claim \"tidewire\")", clip(topic)).With("topic", clip(topic))
}

// Sees reports whether a topic is the caller's business at all.
func (g *Grant) Sees(topic string) bool {
	if g == nil {
		return false
	}
	for r := range numRights {
		if g.open || g.rights.may(r, topic) {
			return true
		}
	}
	return false
}

// Admin says why the caller may not do what is about no topic alone.
func (g *Grant) Admin() error {
	switch {
	case g == nil:
		return Missing()
	case g.open || g.rights.admin:
		return nil
	}
	return fault.New(fault.Forbidden, "the token does not give the right %q (claim \"tidewire\")", adminName).With("right", adminName)
}

// Expired reports whether the grant has ended.
func (g *Grant) Expired(now time.Time) bool {
	return g != nil && !g.Expires.IsZero() && !now.Before(g.Expires)
}

type contextKey struct{}

// In puts a grant into a context.
func In(ctx context.Context, g *Grant) context.Context {
	return context.WithValue(ctx, contextKey{}, g)
}

// Of is the grant of a context; nil where it has none.
func Of(ctx context.Context) *Grant {
	g, _ := ctx.Value(contextKey{}).(*Grant)
	return g
}
