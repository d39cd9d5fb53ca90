package run

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// diary writes down what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, s)
}

// step is a step that behaves and writes its life down.
func (d *diary) step(name string) Step {
	return Step{
		Name:  name,
		Start: func(context.Context) error { d.write("start " + name); return nil },
		Run:   func(ctx context.Context) error { <-ctx.Done(); d.write("end " + name); return ctx.Err() },
		Stop:  func(context.Context) error { d.write("stop " + name); return nil },
	}
}

func (d *diary) life(steps ...Step) Life {
	return Life{
		Steps:    steps,
		Logger:   slog.New(slog.DiscardHandler),
		Ready:    func(time.Duration) { d.write("ready") },
		Stopping: func() { d.write("stopping") },
	}
}

func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("what happened:\n  %s\nwant:\n  %s", strings.Join(d.lines, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestStepsStopInReverseOrderAfterASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		signals := make(chan os.Signal, 2)
		go func() {
			time.Sleep(time.Hour)
			signals <- syscall.SIGTERM
		}()
		if err := d.life(d.step("a"), Step{Name: "empty"}, d.step("b")).Run(t.Context(), signals); err != nil {
			t.Errorf("an orderly stop is an error: %v", err)
		}
		d.expect(t, "start a", "start b", "ready", "stopping", "stop b", "end b", "stop a", "end a")
	})
}

func TestTheEndOfTheContextStopsLikeASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.life(d.step("a")).Run(ctx, nil); err != nil {
			t.Error(err)
		}
		d.expect(t, "start a", "ready", "stopping", "stop a", "end a")
	})
}

func TestAStepThatEndsByItselfFailsTheProcess(t *testing.T) {
	boom := errors.New("boom")
	for name, result := range map[string]error{"by an error": boom, "by nothing": nil, "by a cancel of its own": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				b := d.step("b")
				b.Run = func(context.Context) error { time.Sleep(time.Second); return result }
				err := d.life(d.step("a"), b, d.step("c")).Run(t.Context(), nil)
				var step *StepError
				if !errors.As(err, &step) || step.Step != "b" || (result != nil && !errors.Is(err, result)) {
					t.Errorf("got %v", err)
				}
				d.expect(t, "start a", "start b", "start c", "ready", "stopping", "stop c", "end c", "stop b", "stop a", "end a")
			})
		})
	}
}

func TestAFailedStartStopsWhatHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := d.step("b")
		b.Start = func(context.Context) error { return errors.New("port taken") }
		err := d.life(d.step("a"), b, d.step("c")).Run(t.Context(), nil)
		if err == nil || err.Error() != "b: port taken" {
			t.Errorf("got %v", err)
		}
		d.expect(t, "start a", "stopping", "stop a", "end a")
	})
}

func TestASignalDuringTheStartCutsItShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := d.step("b")
		b.Start = func(ctx context.Context) error { <-ctx.Done(); d.write("start b cut"); return ctx.Err() }
		signals := make(chan os.Signal, 1)
		go func() { time.Sleep(time.Second); signals <- os.Interrupt }()
		if err := d.life(d.step("a"), b, d.step("c")).Run(t.Context(), signals); err != nil {
			t.Error(err)
		}
		// The cut and the notice of the stop run side by side.
		d.lines = slices.DeleteFunc(d.lines, func(l string) bool { return l == "stopping" })
		d.expect(t, "start a", "start b cut", "stop b", "stop a", "end a")
	})
}

func TestAStopThatOverrunsItsDeadlineIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		b := d.step("b")
		b.Deadline = 3 * time.Second
		release := make(chan struct{})
		b.Stop = func(context.Context) error { <-release; return nil }
		go func() { time.Sleep(time.Second); cancel() }()
		begun := time.Now()
		err := d.life(d.step("a"), b).Run(ctx, nil)
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("took %s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "b: stop: did not end within") {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}

func TestALoopThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		a := d.step("a")
		release := make(chan struct{})
		a.Run = func(context.Context) error { <-release; return nil }
		go func() { time.Sleep(time.Second); cancel() }()
		err := d.life(a).Run(ctx, nil)
		if err == nil || !strings.Contains(err.Error(), "a: run: did not end within") {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}

func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		release := make(chan struct{})
		b := d.step("b")
		b.Deadline = time.Hour
		b.Stop = func(context.Context) error { <-release; return nil }
		signals := make(chan os.Signal, 2)
		go func() {
			time.Sleep(time.Second)
			signals <- syscall.SIGTERM
			signals <- syscall.SIGTERM // an echo of the first
			time.Sleep(time.Second)
			signals <- syscall.SIGTERM
		}()
		begun := time.Now()
		err := d.life(d.step("a"), b).Run(t.Context(), signals)
		if !errors.Is(err, ErrForced) || time.Since(begun) != 2*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
		close(release)
	})
}

func TestAfterAFailureTheFirstSignalStillWaitsAndStopsAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a := d.step("a")
		a.Deadline = time.Hour
		a.Stop = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		b := Step{Name: "b", Run: func(context.Context) error { return errors.New("disk") }}
		signals := make(chan os.Signal, 1)
		go func() { time.Sleep(time.Second); signals <- syscall.SIGTERM }()
		begun := time.Now()
		err := d.life(a, b).Run(t.Context(), signals)
		if errors.Is(err, ErrForced) || err == nil || !strings.Contains(err.Error(), "b: disk") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took != failureDeadline {
			t.Errorf("took %s", took)
		}
	})
}

func TestAnErrorWhileStoppingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		a := d.step("a")
		a.Run = func(ctx context.Context) error { <-ctx.Done(); return errors.New("last flush") }
		b := d.step("b")
		b.Stop = func(context.Context) error { return errors.New("half open") }
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		err := d.life(a, b).Run(ctx, nil)
		if err == nil || !strings.Contains(err.Error(), "a: last flush") || !strings.Contains(err.Error(), "b: stop: half open") {
			t.Errorf("got %v", err)
		}
	})
}
