package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Backoff makes a process whose data folder failed wait before it opens that
// folder again: a supervisor restarts it at once, and a dying disk must not be
// hammered, nor recovery run in a circle. The memory of it is a small file in
// the data folder, which an orderly stop removes.
type Backoff struct {
	Dir    string
	Logger *slog.Logger
}

const (
	markerName   = "last-storage-failure"
	firstDelay   = time.Second
	longestDelay = time.Minute
	// forgetAfter: a failure that long after the one before counts as the first.
	forgetAfter = 10 * time.Minute
	// maxMarkerBytes bounds what is read of a marker, which is a cache: a bad
	// one counts as none.
	maxMarkerBytes = 4 << 10
)

type marker struct {
	Count int       `json:"count"` // failures in a row
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Wait waits until the folder may be opened. It returns early only when ctx ends.
func (b Backoff) Wait(ctx context.Context) error {
	m, ok := b.read()
	if !ok {
		return nil
	}
	// A clock that was set back must not make the wait longer than the longest.
	left := min(delay(m.Count)-time.Since(m.At), delay(m.Count))
	if left <= 0 {
		return nil
	}
	b.Logger.Warn("the data folder failed shortly before: waiting before it is opened",
		"err", m.Error, "failures", m.Count, "wait", left.Round(time.Millisecond), "marker", b.path())
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Failed remembers a failure of the data folder. The folder may well be
// unable to take the marker; then there is no wait, and the error says so.
func (b Backoff) Failed(cause error) error {
	m, ok := b.read()
	if !ok || time.Since(m.At) > forgetAfter {
		m = marker{}
	}
	text := cause.Error()
	next := marker{Count: m.Count + 1, At: time.Now(), Error: text[:min(len(text), 1<<10)]}
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode the failure marker: %w", err)
	}
	// Not synced: the folder cannot be trusted with it, and losing it costs a wait.
	if err := os.WriteFile(b.path(), data, 0o600); err != nil {
		return fmt.Errorf("write the failure marker: %w", err)
	}
	return nil
}

// Clear forgets: the process stopped in an orderly way.
func (b Backoff) Clear() error {
	if err := os.Remove(b.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the failure marker: %w", err)
	}
	return nil
}

// Mark names the failure that is remembered; empty: none is. Whatever was written before
// it and not synced may be gone, as if the machine had ended.
func (b Backoff) Mark() string {
	info, err := os.Stat(b.path())
	if err != nil {
		return ""
	}
	return strconv.FormatInt(info.ModTime().UnixNano(), 36)
}

func (b Backoff) path() string { return filepath.Join(b.Dir, markerName) }

func (b Backoff) read() (marker, bool) {
	info, err := os.Stat(b.path())
	if err != nil || info.Size() > maxMarkerBytes {
		return marker{}, false
	}
	data, err := os.ReadFile(b.path())
	if err != nil {
		return marker{}, false
	}
	var m marker
	if json.Unmarshal(data, &m) != nil || m.Count < 1 {
		return marker{}, false
	}
	return m, true
}

// delay doubles with each failure in a row, up to the longest.
func delay(count int) time.Duration {
	d := firstDelay
	for range count - 1 {
		if d >= longestDelay {
			break
		}
		d *= 2
	}
	return min(d, longestDelay)
}
