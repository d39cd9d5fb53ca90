package session

import (
	"context"
	"time"
)

// life is a session as the context of what is done for it: it ends with the
// connection. A session has one for nothing, where the library's would cost as
// much memory as all else of it.
type life session

func (l *life) Deadline() (at time.Time, ok bool) { return at, false }
func (l *life) Done() <-chan struct{}             { return l.ended }
func (l *life) Value(any) any                     { return nil }

func (l *life) Err() error {
	select {
	case <-l.ended:
		return context.Canceled
	default:
		return nil
	}
}

var _ context.Context = (*life)(nil)
