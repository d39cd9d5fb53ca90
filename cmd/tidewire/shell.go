package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"tidewire/cmd/tidewire/internal/client"
)

// shell runs a command for a message of a group: its standard input is the value, and the
// rest of the message is in its environment.
type shell struct {
	command string
	topic   string
	environ []string
}

// killAfter is how long a command that is told to stop, because its record is not its own
// any more or nobody waits for it, may take before it is killed.
const killAfter = 5 * time.Second

// run runs the command for a message; more is further environment.
func (s shell) run(ctx context.Context, m client.Leased, out, err io.Writer, more ...string) error {
	value, unfit := valueBytes(m.Message)
	if unfit != nil {
		return unfit
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
	cmd.Stdin = bytes.NewReader(value)
	cmd.Stdout, cmd.Stderr = out, err
	cmd.Env = append(append(append([]string{}, s.environ...), s.about(m)...), more...)
	// In a group of its own: Ctrl-C at a terminal is for tidewire, which lets the command
	// finish. What ends a command ends what it has started too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if errors.Is(syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM), syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return nil
	}
	cmd.WaitDelay = killAfter
	return cmd.Run()
}

// about is what the environment says of a message.
func (s shell) about(m client.Leased) []string {
	key, headers := "", []byte("{}")
	if m.Key != nil {
		key = *m.Key
	}
	if len(m.Headers) > 0 {
		headers, _ = json.Marshal(m.Headers) // strings can be
	}
	all := []string{
		"TIDEWIRE_TOPIC=" + s.topic, "TIDEWIRE_PARTITION=" + strconv.FormatUint(uint64(m.Partition), 10), "TIDEWIRE_OFFSET=" + strconv.FormatInt(m.Offset, 10),
		"TIDEWIRE_DELIVERY=" + strconv.Itoa(m.Delivery), "TIDEWIRE_KEY=" + key, "TIDEWIRE_HEADERS=" + string(headers), "TIDEWIRE_CONTENT_TYPE=" + m.ContentType,
	}
	if len(m.Raw) <= maxEnviron {
		all = append(all, "TIDEWIRE_MESSAGE="+string(m.Raw))
	}
	return all
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
