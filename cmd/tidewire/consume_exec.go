package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/worker"
)

// exitReject is the exit code by which a command says that a record will never do
// (EX_DATAERR of sysexits.h).
const exitReject = 65

// killAfter is how long a command that is told to stop, because its record is not its own
// any more, may take before it is killed.
const killAfter = 5 * time.Second

// shell runs a command for each record.
type shell struct {
	command  string
	topic    string
	out, err io.Writer
	environ  []string
}

func (s shell) run(ctx context.Context, m client.Leased) error {
	value, err := valueBytes(m.Message)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
	cmd.Stdin = bytes.NewReader(value)
	cmd.Stdout, cmd.Stderr = s.out, s.err
	key := ""
	if m.Key != nil {
		key = *m.Key
	}
	cmd.Env = append(append([]string{}, s.environ...),
		"TIDEWIRE_TOPIC="+s.topic, "TIDEWIRE_PARTITION="+strconv.FormatUint(uint64(m.Partition), 10), "TIDEWIRE_OFFSET="+strconv.FormatInt(m.Offset, 10),
		"TIDEWIRE_DELIVERY="+strconv.Itoa(m.Delivery), "TIDEWIRE_KEY="+key)
	if len(m.Raw) <= maxEnviron {
		cmd.Env = append(cmd.Env, "TIDEWIRE_MESSAGE="+string(m.Raw))
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended) && ended.ExitCode() == exitReject:
		return &worker.Rejection{Reason: fmt.Sprintf("the command ended with exit code %d", exitReject)}
	}
	return fmt.Errorf("the command: %w", err)
}

// maxEnviron is the longest message that is given in a variable: a kernel takes no more
// than 128 KiB in one.
const maxEnviron = 100 << 10

// valueBytes is a value as it was published.
func valueBytes(m client.Message) ([]byte, error) {
	var text string
	switch {
	case m.Tombstone:
		return nil, nil
	case m.Base64 != nil:
		return *m.Base64, nil
	case len(m.ContentType) >= 5 && m.ContentType[:5] == "text/":
		if err := json.Unmarshal(m.Value, &text); err != nil {
			return nil, fmt.Errorf("the value is no text: %w", err)
		}
		return []byte(text), nil
	}
	return m.Value, nil
}
