package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/gateway/access"
	"tidewire/internal/boot"
	"tidewire/internal/obs"
)

// process is what a command touches of the process around it.
type process struct {
	in       *os.File
	out, err io.Writer
	environ  []string
	args     []string // the command line, without the program's name
	// journalBytes is the size of a node's journal files; 0: the storage's own.
	// Tests make it small: a start reads all of them.
	journalBytes int64
	// coarsen is coarsenTimers; nil: the process is not a node's alone, but a test's.
	coarsen func() error
}

// variable is the value of an environment variable; empty counts as not set.
func (p process) variable(name string) string {
	for _, e := range p.environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// terminal reports whether f is one.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Exit codes, the same for every command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// exitError ends the process with a code. Without an error there is nothing
// left to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{exitUsage, err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// execute runs a command line and returns its exit code.
func execute(args []string, p process) int {
	p.args = args
	begun := false // past cobra's own checks: its errors are errors of usage
	root := newRoot(p)
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	if !begun {
		code = exitUsage
	}
	var silent *exitError
	if !errors.As(err, &silent) || silent.err != nil {
		fmt.Fprintf(p.err, "tidewire: %v\n", err)
		if p := (*client.Problem)(nil); errors.As(err, &p) && p.Reason == string(access.NoToken) {
			fmt.Fprintf(root.ErrOrStderr(), "tidewire: give one in %s, or by --token\n", tokenVariable)
		}
	}
	return code
}

func exitCode(err error) int {
	var exit *exitError
	var problem *client.Problem
	var gone *client.Unreachable
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &problem):
		return exitRefused
	case errors.As(err, &gone):
		return exitUnreachable
	}
	return exitFailed
}

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidewire",
		Short: "A log of records on the inside, WebSocket and SSE on the outside",
		Long: `Tidewire keeps records in partitioned, durable topics and pushes them to clients
over WebSocket and Server-Sent Events.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not reachable, 4 refused by the node.`,
		Example: `  tidewire serve
  tidewire topic create orders --partitions 4
  echo '{"id":1,"user":"ann"}' | tidewire publish orders --key-field user
  tidewire tail orders -f`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          nearestCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newServe(p), newTopic(p), newPublish(p), newTail(p), newConsume(p), newGroup(p), newRequest(p), newRespond(p), newNodes(p), newDrain(p), newAlerts(p),
		newToken(p), newLog(p), newBench(p), newCapacity(p), newHealthcheck(p), newVersion(p),
	)
	root.Version = obs.ReadBuild(version).String() // for --version
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" { // cobra's own takes any word and prints its help
			cmd.Args, cmd.RunE = nearestCommand, group
			for _, shell := range cmd.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return root
}

// nearestCommand is the argument check of a command that only holds others.
func nearestCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if what, ok := lacking(cmd.CommandPath() + " " + args[0]); ok {
		return usagef("%s has no command %q: this version has %s", cmd.CommandPath(), args[0], what)
	}
	names := commandNames(cmd)
	return usagef("%s has no command %q%s", cmd.CommandPath(), args[0],
		boot.Nearest(args[0], names, "", "it has "+strings.Join(names, ", ")))
}

func commandNames(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// group is the run of a command that only holds others.
func group(cmd *cobra.Command, _ []string) error {
	return usagef("%s needs one of: %s", cmd.CommandPath(), strings.Join(commandNames(cmd), ", "))
}

// interruptible gives a context that the first SIGINT or SIGTERM ends; a second
// one kills the process as usual.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
