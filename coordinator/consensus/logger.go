package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// bridge hands raft's log lines to slog, one step quieter: what raft calls
// information is of interest to its developers, its warnings to operators. A lone
// node's way to leadership warns each time; that is none of either.
type bridge struct {
	to   *slog.Logger
	name string
	args []any
}

func newBridge(to *slog.Logger) hclog.Logger { return &bridge{to: to, name: "raft"} }

func (b *bridge) level(l hclog.Level, msg string, args []any) slog.Level {
	switch {
	case slices.ContainsFunc(args, full):
		return slog.LevelDebug // each try says it again; the node says it once
	case l >= hclog.Error:
		return slog.LevelWarn
	case l == hclog.Warn && msg != "heartbeat timeout reached, starting election":
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func full(arg any) bool {
	err, ok := arg.(error)
	return ok && errors.Is(err, errFull)
}

func (b *bridge) Log(l hclog.Level, msg string, args ...any) {
	level := b.level(l, msg, args)
	if !b.to.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]any, 0, len(b.args)+len(args)+2)
	attrs = append(attrs, b.args...)
	attrs = append(attrs, "raft", msg)
	for _, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		attrs = append(attrs, a)
	}
	b.to.Log(context.Background(), level, "coordinator raft", attrs...)
}

func (b *bridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }
func (b *bridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }
func (b *bridge) Info(msg string, args ...any)  { b.Log(hclog.Info, msg, args...) }
func (b *bridge) Warn(msg string, args ...any)  { b.Log(hclog.Warn, msg, args...) }
func (b *bridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

func (b *bridge) is(l slog.Level) bool { return b.to.Enabled(context.Background(), l) }
func (b *bridge) IsTrace() bool        { return false }
func (b *bridge) IsDebug() bool        { return b.is(slog.LevelDebug) }
func (b *bridge) IsInfo() bool         { return b.is(slog.LevelDebug) }
func (b *bridge) IsWarn() bool         { return b.is(slog.LevelInfo) }
func (b *bridge) IsError() bool        { return b.is(slog.LevelWarn) }

func (b *bridge) ImpliedArgs() []any { return b.args }
func (b *bridge) Name() string       { return b.name }

func (b *bridge) With(args ...any) hclog.Logger {
	return &bridge{to: b.to, name: b.name, args: append(b.args[:len(b.args):len(b.args)], args...)}
}

func (b *bridge) Named(name string) hclog.Logger { return b.ResetNamed(b.name + "." + name) }

func (b *bridge) ResetNamed(name string) hclog.Logger {
	return &bridge{to: b.to, name: name, args: b.args}
}

func (b *bridge) SetLevel(hclog.Level)  {} // slog decides
func (b *bridge) GetLevel() hclog.Level { return hclog.Debug }
func (b *bridge) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(b.StandardWriter(o), "", 0)
}
func (b *bridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lines{b} }

type lines struct{ b *bridge }

func (l lines) Write(p []byte) (int, error) {
	l.b.Debug(string(bytes.TrimSpace(p)))
	return len(p), nil
}
