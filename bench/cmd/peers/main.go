// Peers measures Tidewire and other systems side by side, and writes what came of it as
// a page. See ../../../docs/performance.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewire/bench/internal/drive"
	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/bench/internal/report"
	"tidewire/internal/bench/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// errFailed is the end of a comparison with rows that failed.
var errFailed = errors.New("some rows failed; they say why")

// mostConnections is what the generator has open at a time: the idle connections of three
// systems, or one system's subscribers.
const mostConnections = 18_400

type options struct {
	scenarios, cases, systems, bin, dir, page, keep string
	repetitions                                     int
	smoke, list                                     bool
	duration                                        time.Duration
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.StringVar(&o.scenarios, "scenarios", "", "scenarios, with commas between; all otherwise")
	fs.StringVar(&o.cases, "cases", "", "cases, with commas between; all otherwise")
	fs.StringVar(&o.systems, "systems", "", "systems, with commas between; all otherwise")
	fs.StringVar(&o.bin, "bin", "", "the folder of tidewire, natsserver and centrifuge; this binary's own otherwise")
	fs.StringVar(&o.dir, "dir", ".", "the folder below which data goes, on the disk that is measured")
	fs.StringVar(&o.page, "page", "", "the page that is written; standard output otherwise")
	fs.StringVar(&o.keep, "keep", "", "a file that keeps the results: scenarios that are not measured now are taken from it")
	fs.IntVar(&o.repetitions, "repetitions", 3, "how often each system has its turn")
	fs.DurationVar(&o.duration, "duration", 0, "of a run, in place of the plan's: to look at a process meanwhile")
	fs.BoolVar(&o.smoke, "smoke", false, "runs of a tenth of a second, to see that all of it works")
	fs.BoolVar(&o.list, "list", false, "print the scenarios with their cases and about how long they take")
	err = fs.Parse(args)
	return o, err
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	all, err := plan.Select(plan.All(), o.scenarios, fields(o.cases), fields(o.systems))
	if err != nil {
		return err
	}
	if o.smoke {
		all = plan.Smoke(all)
	}
	if o.duration > 0 {
		all = plan.Lasting(all, o.duration)
	}
	if o.list {
		list(all, o.repetitions)
		return nil
	}
	if err := proc.RaiseFiles(mostConnections); err != nil {
		return err
	}
	world, undo, err := world(o)
	if err != nil {
		return err
	}
	defer undo()
	page := report.Page{Settings: settings(ctx, world), Missing: map[plan.System]string{}, Repetitions: o.repetitions, Scenarios: plan.All(), Bars: plan.Bars(), Results: figures.Results{}}
	if o.scenarios+o.cases+o.systems != "" && o.keep != "" {
		if page.Results, err = kept(o.keep); err != nil {
			return err
		}
	}
	failed := false
	began := time.Now()
	for _, s := range all {
		for _, x := range s.Systems() {
			if why := world.Missing(x); why != "" {
				page.Missing[x] = why
			}
		}
		fresh := figures.Results{}
		fmt.Fprintf(os.Stderr, "== %s (about %.0f s; %.0f s so far)\n", s.Name, s.Seconds(o.repetitions), time.Since(began).Seconds())
		world.Scenario(ctx, s, o.repetitions, fresh, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
		if ctx.Err() != nil {
			break // half a scenario is worth less than what was kept of it
		}
		failed = failed || fresh.Failed()
		page.Results.Replace(fresh)
		if o.keep != "" {
			if err := keep(o.keep, page.Results); err != nil {
				return err
			}
		}
	}
	page.Settings = append(page.Settings, report.Setting{Name: "took", Value: time.Since(began).Round(time.Second).String() + " for " + strings.Join(plan.Names(all), ", ")})
	if err := write(o.page, report.Markdown(page)); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case failed:
		return errFailed
	}
	return nil
}

func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func list(all []plan.Scenario, repetitions int) {
	total := 0.0
	for _, s := range all {
		fmt.Printf("%-12s %5.0f s  %s\n", s.Name, s.Seconds(repetitions), s.Title)
		for _, c := range s.Cases {
			names := make([]string, len(c.Systems))
			for i, x := range c.Systems {
				names[i] = string(x)
			}
			fmt.Printf("  %-24s %5.0f s  %s\n", c.Name, c.Seconds(repetitions), strings.Join(names, " "))
		}
		total += s.Seconds(repetitions)
	}
	fmt.Printf("about %.0f minutes\n", total/60)
}

// world makes the folder that data goes to; undo removes it.
func world(o options) (w drive.World, undo func(), err error) {
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return w, nil, err
		}
		o.bin = filepath.Dir(self)
	}
	dir, err := os.MkdirTemp(o.dir, "tidewire-bench-")
	if err != nil {
		return w, nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return w, nil, err
	}
	w = drive.World{Dir: dir, Bin: o.bin, Tidewire: filepath.Join(o.bin, "tidewire"), Redis: drive.FindRedis(), Hurry: make(chan struct{})}
	return w, func() { _ = os.RemoveAll(dir) }, nil
}

// settings are what the figures were taken with.
func settings(ctx context.Context, w drive.World) []report.Setting {
	load := firstLine("/proc/loadavg")
	all := []report.Setting{
		{Name: "when", Value: time.Now().UTC().Format("2006-01-02 15:04 UTC") + ", load before it began " + load},
		{Name: "machine", Value: fmt.Sprintf("%d processors (%s), Linux %s, %s", runtime.NumCPU(), processor(), release(), runtime.Version())},
		{Name: "Tidewire", Value: output(ctx, w.Tidewire, "version") + "; its defaults, `--max-connection-rate 0` but in the storm"},
		{Name: "nats-server", Value: drive.NATSVersion + "; its defaults but for `sync_interval: always` where a row says so; file store, WebSocket without TLS and compression"},
		{Name: "Centrifugo", Value: "the library centrifuge " + drive.CentrifugeVersion + "; memory engine, history of 1,000 messages for 5 minutes, positioning and recovery on, JSON, pooled write buffers"},
	}
	if w.Redis != "" {
		all = append(all, report.Setting{Name: "Redis", Value: output(ctx, w.Redis, "--version") + "; `appendonly yes`, `appendfsync always`, no snapshots, no rewriting of the file meanwhile"})
	}
	return all
}

func output(ctx context.Context, name string, args ...string) string {
	b, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown version"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return line
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kept reads earlier results; none where there is no such file.
func kept(path string) (figures.Results, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return figures.Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := figures.Results{}
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func keep(path string, r figures.Results) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

func write(path, text string) error {
	if path == "" {
		fmt.Print(text)
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
