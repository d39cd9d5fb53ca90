package membership

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"
)

// A stranger that sends garbage must not fill the log: so many lines of one
// minute are told, and the next one after it says how many were left out.
const (
	linesPerMinute = 20
	minute         = time.Minute
)

// lines hands memberlist's log lines to slog. A line begins with its level:
// "[WARN] memberlist: …". What it calls information is for its developers.
type lines struct {
	to *slog.Logger

	mu    sync.Mutex
	since time.Time // when the minute began
	told  int       // in it
	left  int       // left out since the last line that was told
}

func (l *lines) Write(p []byte) (int, error) {
	text := bytes.TrimSpace(p)
	level := slog.LevelDebug
	if rest, found := bytes.CutPrefix(text, []byte("[")); found {
		if name, after, found := bytes.Cut(rest, []byte("] ")); found {
			text = after
			switch string(name) {
			case "WARN":
				level = slog.LevelInfo
			case "ERR", "ERROR":
				level = slog.LevelWarn
			}
		}
	}
	if bytes.Contains(text, []byte(errForeign.Error())) {
		level = slog.LevelDebug // each try of a stranger says it again; this package says it once
	}
	if !l.to.Enabled(context.Background(), level) {
		return len(p), nil
	}
	left, ok := l.take(time.Now())
	if !ok {
		return len(p), nil
	}
	text = bytes.TrimPrefix(text, []byte("memberlist: "))
	args := []any{"memberlist", string(text)}
	if left > 0 {
		args = append(args, "left_out", left)
	}
	l.to.Log(context.Background(), level, "gossip", args...)
	return len(p), nil
}

// take says whether a line may be told, and how many before it were not.
func (l *lines) take(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= minute {
		l.since, l.told = now, 0
	}
	if l.told == linesPerMinute {
		l.left++
		return 0, false
	}
	l.told++
	left, l.left = l.left, 0
	return left, true
}
