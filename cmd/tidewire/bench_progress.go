package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// benchProgress shows on a terminal's standard error what is going on; elsewhere
// it shows nothing.
type benchProgress struct {
	err io.Writer // nil: no terminal
	bar *progressbar.ProgressBar
}

func newBenchProgress(p process, off bool) *benchProgress {
	if off || !terminal(p.err) {
		return &benchProgress{}
	}
	return &benchProgress{err: p.err}
}

// Phase begins something.
func (b *benchProgress) Phase(what string, steps int) {
	b.finish()
	if b.err == nil || steps <= 0 {
		return
	}
	b.bar = progressbar.NewOptions(steps, progressbar.OptionSetWriter(b.err), progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
}

// Step says how far it is.
func (b *benchProgress) Step(done int) {
	if b.bar != nil {
		_ = b.bar.Set(min(done, b.bar.GetMax())) // a bar that cannot be drawn is no reason to stop
	}
}

func (b *benchProgress) finish() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
