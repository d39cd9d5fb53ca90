package membership

import (
	"bytes"
	"context"
	"log/slog"
)

// lines hands memberlist's log lines to slog. A line begins with its level:
// "[WARN] memberlist: …". What it calls information is for its developers.
type lines struct{ to *slog.Logger }

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
	text = bytes.TrimPrefix(text, []byte("memberlist: "))
	l.to.Log(context.Background(), level, "gossip", "memberlist", string(text))
	return len(p), nil
}
