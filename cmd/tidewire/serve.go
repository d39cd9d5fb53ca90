package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tidewire/gateway/access"
	"tidewire/internal/boot"
	"tidewire/internal/obs"
	"tidewire/internal/run"
)

func newServe(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Serve runs a node with all roles until it is told to stop.

Every setting is a flag, a variable TIDEWIRE_<NAME>, or a line of the YAML file of
--config, under the same name (--log-level, TIDEWIRE_LOG_LEVEL, log_level); flags win
over variables, variables over the file.

The standard output has a line for each listener, such as listening http=127.0.0.1:8080,
and ready in 41ms once the node serves; logs go to the standard error. The first
SIGTERM or SIGINT drains and stops the node, a second one ends it at once.`,
		Example: `  tidewire serve
  tidewire serve --data /var/lib/tidewire --log-format json
  TIDEWIRE_HTTP=127.0.0.1:0 tidewire serve --config tidewire.yaml`,
		Args: noArguments,
	}
	boot.AddFlags(cmd.Flags())
	cmd.Flags().SortFlags = false
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagDirname("data")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return allFaults(cmd, p, err) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		n, err := newNode(cmd.Flags(), p)
		if err != nil {
			return usage(err)
		}
		if p.coarsen != nil {
			if err := p.coarsen(); err != nil {
				n.log.Warn("timers stay finer than a node needs, which costs processor time", obs.Err, err)
			}
		}
		return serve(cmd.Context(), n, p)
	}
	return cmd
}

// allFaults tells the faults of the settings all at once: the parser stops at the
// first flag that it does not know.
func allFaults(cmd *cobra.Command, p process, first error) error {
	args := p.args[slices.Index(p.args, cmd.Name())+1:]
	faults := []error{}
	for {
		faults = append(faults, flagError(cmd, first))
		var unknown *pflag.NotExistError
		if !errors.As(first, &unknown) {
			break
		}
		args = without(args, unknown)
		fs := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		boot.AddFlags(fs)
		if first = fs.Parse(args); first == nil {
			_, err := newNode(fs, p)
			faults = append(faults, err)
			break
		}
	}
	return usage(errors.Join(faults...))
}

// without is a command line less a flag and what most likely is its value.
func without(args []string, flag *pflag.NotExistError) []string {
	for i, a := range args {
		name, _, bound := strings.Cut(a, "=")
		if name != "--"+flag.GetSpecifiedName() && name != "-"+flag.GetSpecifiedShortnames() {
			continue
		}
		next := i + 1
		if !bound && next < len(args) && !strings.HasPrefix(args[next], "-") {
			next++
		}
		return slices.Delete(slices.Clone(args), i, next)
	}
	return nil
}

// newNode reads the settings and checks them against the machine. Its errors
// are mistakes in the settings.
func newNode(fs *pflag.FlagSet, p process) (*node, error) {
	disk, environ, err := dataDisk(p.environ)
	if err != nil {
		return nil, err
	}
	throughLinks, environ := linksBetween(environ)
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // boot has another name
	}
	cfg, err := boot.Load(boot.Source{Flags: fs, Environ: environ, Hostname: hostname})
	if err != nil {
		return nil, err
	}
	for i, key := range cfg.AuthPublic {
		if access.AlgorithmOf(key) == "" {
			return nil, fmt.Errorf("auth_key_file: key %d of the file proves no token: a key is of RSA with 2048 to 16384 bits (RS256), of the curve P-256 (ES256), or Ed25519 (EdDSA)", i+1)
		}
	}
	files, err := obs.ReadDescriptors()
	if err != nil {
		return nil, err
	}
	connections, err := files.MaxConnections(cfg.MaxConnections)
	if err != nil {
		return nil, err
	}
	build := obs.ReadBuild(version)
	return &node{
		cfg: cfg, disk: disk, files: files, connections: connections, build: build,
		log: obs.NewLogger(p.err, cfg.LogLevel, cfg.LogFormat), registry: obs.NewRegistry(build, connections),
		out: p.out, journal: p.journalBytes, began: time.Now(), registered: make(chan struct{}), throughLinks: throughLinks,
	}, nil
}

// serve runs a node until it is told to stop, or a part of it fails.
func serve(ctx context.Context, n *node, p process) error {
	// Room for both signals that mean something.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	n.log.Info("starting", "version", n.build.Version, "revision", n.build.Revision, "go", n.build.Go, "pid", os.Getpid())
	n.log.Info("configuration", "config", n.cfg)
	n.log.Info("open files", "limit", n.files, "max_connections", n.connections)
	socket := p.variable("NOTIFY_SOCKET")
	tell := func(state string) {
		if err := run.Notify(socket, state); err != nil {
			n.log.Warn("systemd was not told", "state", state, obs.Err, err)
		}
	}
	backoff := run.Backoff{Dir: n.cfg.Data, Logger: n.log}
	life := run.Life{
		Steps:  append([]run.Step{{Name: "restart back-off", Start: backoff.Wait}}, n.start.told(advised(n.steps(), n.cfg))...),
		Logger: n.log,
		Ready: func(took time.Duration) {
			n.ready.Store(true)
			n.rpc.Ready(true)
			took = took.Round(time.Millisecond)
			fmt.Fprintf(n.out, "ready in %s\n", max(took, time.Millisecond))
			n.log.Info("ready", obs.Took, took)
			tell("READY=1")
		},
		Stopping: func() {
			n.stopping.Store(true)
			n.ready.Store(false)
			if n.rpc != nil {
				n.rpc.Ready(false)
			}
			tell("STOPPING=1")
		},
	}
	err := life.Run(ctx, signals)
	return errors.Join(err, n.settle(backoff, err))
}

// advised has the steps that listen say what to do where somebody else does.
func advised(steps []run.Step, cfg boot.Config) []run.Step {
	listeners := map[string]struct{ flag, address string }{
		"http listener": {"http", cfg.HTTP}, "coordinator": {"raft", cfg.Raft}, "gossip": {"gossip", cfg.Gossip}, "rpc": {"rpc", cfg.RPC},
	}
	for i, step := range steps {
		l, ok := listeners[step.Name]
		if !ok {
			continue
		}
		steps[i].Start = func(ctx context.Context) error {
			err := step.Start(ctx)
			// Gossip tells it in words alone.
			if err == nil || !errors.Is(err, syscall.EADDRINUSE) && !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
				return err
			}
			return fmt.Errorf("%s is taken: is another node running? Stop it, or give this one another address with --%s (port 0 picks one)", l.address, l.flag)
		}
	}
	return steps
}

// settle leaves word for the next start of how this one ended.
func (n *node) settle(backoff run.Backoff, err error) error {
	var failed *diskFailure
	switch {
	case errors.As(err, &failed):
		return backoff.Failed(failed)
	case err == nil:
		n.log.Info("stopped")
		return backoff.Clear()
	}
	return nil
}
