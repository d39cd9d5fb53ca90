//go:build !linux

package turn

import (
	"context"
	"errors"
	"syscall"
)

// poll is not there on this system: readers wait themselves.
type poll struct{}

func newPoll() *poll { return nil }

func (*poll) arm(syscall.RawConn, uint64) error { return errors.ErrUnsupported }

func (*poll) run(context.Context, func(uint64)) error { return errors.ErrUnsupported }
