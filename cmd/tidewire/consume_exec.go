package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/worker"
)

// exitReject is the exit code by which a command says that a record will never do
// (EX_DATAERR of sysexits.h).
const exitReject = 65

// consume runs the command for a record, and says what is to become of it.
func (s shell) consume(ctx context.Context, m client.Leased, out, errs io.Writer) error {
	err := s.run(ctx, m, out, errs)
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended) && ended.ExitCode() == exitReject:
		return &worker.Rejection{Reason: fmt.Sprintf("the command ended with exit code %d", exitReject)}
	}
	return fmt.Errorf("the command: %w", err)
}
