package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Step is one part of the process. Each function may be nil.
type Step struct {
	Name string
	// Start returns once the step serves. Its context ends with the first signal.
	Start func(ctx context.Context) error
	// Run follows Start and goes on until its context ends, which is after Stop.
	Run func(ctx context.Context) error
	// Stop ends the step in an orderly way; its context ends at the deadline.
	Stop func(ctx context.Context) error
	// Deadline bounds Stop and the end of Run together; 0: 5 s.
	Deadline time.Duration
}

const (
	defaultDeadline = 5 * time.Second
	// failureDeadline bounds each stop after a failure: what is left of the
	// process serves nobody, and a new one is waiting to take over.
	failureDeadline = 5 * time.Second
	// echo: a signal this soon after the first is the same one. Some senders
	// (timeout of coreutils, for one) signal the process and then its group.
	echo = 250 * time.Millisecond
)

// StepError says which step failed.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// ErrForced is Run's answer to a second signal: steps may still be running, and
// the process must exit.
var ErrForced = errors.New("second signal: ended at once")

var errAsked = errors.New("asked to stop")

// Life runs steps. It is used once.
type Life struct {
	Steps    []Step
	Logger   *slog.Logger
	Ready    func(took time.Duration) // every step has started; may be nil
	Stopping func()                   // the stop begins; may be nil
}

// Run starts the steps, waits for a signal, the end of ctx or a failure, and
// stops them. It returns nil if the process was asked to stop and every step
// stopped in time. It returns after the last of its goroutines, but for steps
// that overran their deadline and for ErrForced.
func (l Life) Run(ctx context.Context, signals <-chan os.Signal) error {
	began := time.Now()
	lt := &lifetime{
		Life:    l,
		asked:   ctx.Done(),
		signals: signals,
		base:    context.WithoutCancel(ctx),
		ended:   make(chan *StepError, len(l.Steps)), // each running step sends once
	}
	cause := lt.start()
	if cause == nil {
		if l.Ready != nil {
			l.Ready(time.Since(began))
		}
		_, cause = lt.until(nil)
	}
	return lt.stop(cause)
}

// lifetime is the state of one Run. Only the goroutine of Run touches it.
type lifetime struct {
	Life
	asked   <-chan struct{}
	signals <-chan os.Signal
	base    context.Context // what the steps' contexts come from: never ends by itself
	ended   chan *StepError
	begun   []*begun
	told    time.Time // when it was asked to stop, by a signal or by the end of ctx
	wg      sync.WaitGroup
}

// begun is a step that has begun to start.
type begun struct {
	Step
	starting <-chan error       // where Start was cut short; else nil
	cancel   context.CancelFunc // ends Run
	done     chan struct{}      // closed when Run has returned; nil without one
}

// start starts the steps one by one. It returns why the process must stop
// already, or nil.
func (lt *lifetime) start() error {
	ctx, cancel := context.WithCancel(lt.base)
	defer cancel()
	for _, step := range lt.Steps {
		since := time.Now()
		if step.Start != nil {
			result := lt.call(ctx, step.Start)
			err, cause := lt.until(result)
			if err != nil {
				return &StepError{step.Name, err}
			}
			if cause != nil {
				cancel()
				// What the step has opened by then is stopped like the rest.
				lt.begun = append(lt.begun, &begun{Step: step, starting: result, cancel: func() {}})
				return cause
			}
		}
		lt.launch(step)
		lt.Logger.Debug("step started", "step", step.Name, "took", time.Since(since))
	}
	return nil
}

// launch begins a step's Run. A step that fails or ends unasked reports on
// lt.ended.
func (lt *lifetime) launch(step Step) {
	b := &begun{Step: step, cancel: func() {}}
	lt.begun = append(lt.begun, b)
	if step.Run == nil {
		return
	}
	ctx, cancel := context.WithCancel(lt.base)
	b.cancel, b.done = cancel, make(chan struct{})
	lt.wg.Go(func() {
		defer close(b.done)
		err := step.Run(ctx)
		if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		lt.ended <- &StepError{step.Name, err}
	})
}

// until waits for a result or for a reason to stop. A nil result never comes.
func (lt *lifetime) until(result <-chan error) (err, cause error) {
	select {
	case err = <-result:
		return err, nil
	case <-lt.asked:
		lt.told = time.Now()
		return nil, errAsked
	case sig := <-lt.signals:
		lt.told = time.Now()
		lt.Logger.Info("stopping", "signal", sig.String())
		return nil, errAsked
	case failed := <-lt.ended:
		return nil, failed
	}
}

// stop stops what has begun, the last first, and says how the process ended.
func (lt *lifetime) stop(cause error) error {
	var faults []error
	failed := !errors.Is(cause, errAsked)
	if failed {
		faults = append(faults, cause)
		lt.Logger.Error("a part of the process failed, stopping", "err", cause)
	}
	if lt.Stopping != nil {
		lt.Stopping()
	}
	for _, b := range slices.Backward(lt.begun) {
		limit := cmp.Or(b.Deadline, defaultDeadline)
		if failed {
			limit = min(limit, failureDeadline)
		}
		err := lt.end(b, limit)
		if errors.Is(err, ErrForced) {
			for _, rest := range lt.begun {
				rest.cancel()
			}
			return errors.Join(append(faults, err)...)
		}
		if err != nil {
			faults = append(faults, &StepError{b.Name, err})
			lt.Logger.Error("a step did not stop as it should", "step", b.Name, "err", err)
		}
	}
	for {
		select {
		case e := <-lt.ended: // failed while it was stopping
			faults = append(faults, e)
		default:
			return errors.Join(faults...)
		}
	}
}

// end stops one step within a limit.
func (lt *lifetime) end(b *begun, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(lt.base, limit)
	defer cancel()
	defer b.cancel()
	var faults []error
	// Each part has to end before the next is asked: nothing is stopped while it starts.
	if b.starting != nil {
		if _, err := lt.await(ctx, b.starting); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	if b.Stop != nil {
		err, late := lt.await(ctx, lt.call(ctx, b.Stop))
		if errors.Is(late, ErrForced) {
			return late
		}
		faults = append(faults, prefix("stop", err), prefix("stop", late))
	}
	b.cancel()
	if b.done != nil {
		_, late := lt.await(ctx, lt.call(ctx, func(context.Context) error { <-b.done; return nil }))
		faults = append(faults, prefix("run", late))
	}
	return errors.Join(faults...)
}

func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

var errLate = errors.New("did not end within its deadline")

// await waits for a result. late says why it did not come: the end of ctx, or a
// second signal (ErrForced).
func (lt *lifetime) await(ctx context.Context, result <-chan error) (err, late error) {
	for {
		select {
		case err := <-result:
			return err, nil
		case <-ctx.Done():
			// Both may be there: what ended in time ended in time.
			select {
			case err := <-result:
				return err, nil
			default:
				return nil, errLate
			}
		case sig := <-lt.signals:
			switch {
			case lt.told.IsZero():
				lt.told = time.Now() // a failure began this stop: this is the first signal
			case time.Since(lt.told) > echo:
				lt.Logger.Warn("ended at once", "signal", sig.String())
				return nil, ErrForced
			}
		}
	}
}

// call runs f beside; the channel holds its result, so f never waits for a reader.
func (lt *lifetime) call(ctx context.Context, f func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	lt.wg.Go(func() { result <- f(ctx) })
	return result
}
