package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/worker"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// responders is the group of those who answer requests, if no other is named.
const responders = "responders"

// respondFlags are what respond is told.
type respondFlags struct {
	group, member     string
	exec, contentType string
	parallel          int
	limit             int64
	idle              time.Duration
}

func newRespond(p process) *cobra.Command {
	var f respondFlags
	cmd := &cobra.Command{
		Use:   "respond TOPIC --exec COMMAND",
		Short: "Answer the requests of a topic with a command",
		Long: `Respond joins a group of the topic and has a shell run the command for each request: its
standard input is the request's value, its standard output the reply. Members of one
group share the requests among them. A group that does not exist is made: shared, and
from now on.

The command finds TIDEWIRE_CORRELATION_ID and TIDEWIRE_DEADLINE (RFC 3339) in its
environment, and all that consume --exec gives one. Where its exit code is not 0 the
reply is a failure of status 500 with the last lines of its standard error.

A request is acknowledged once its reply is taken; until then, should this responder
die, another one works on it. One that is past its deadline is acknowledged without a
run, for nobody waits for it any more, and so is a record that is no request. A command
that still runs at the deadline is told to stop (SIGTERM), and killed 5 s later. A reply
whose requester has left meanwhile is counted.

Ctrl-C finishes what is in hand and leaves.`,
		Example: `  tidewire respond prices --exec './price.sh' --content-type application/json
  tidewire respond thumbnails --parallel 8 --exec 'convert - -resize 64 png:-' --content-type image/png`,
		Args: oneTopic,
	}
	r := addRemote(cmd, p)
	fs := cmd.Flags()
	fs.StringVarP(&f.group, "group", "g", responders, "the `group` to be a member of")
	fs.StringVar(&f.member, "member", "", "the member's `name`: one that comes back under it within its session keeps its place")
	fs.StringVar(&f.exec, "exec", "", "run this `command` for each request")
	fs.IntVar(&f.parallel, "parallel", 1, "so many commands at a time, those of one key one after the other")
	fs.StringVar(&f.contentType, "content-type", "", "the content `type` of the replies; by their looks if not given")
	fs.Int64VarP(&f.limit, "limit", "n", 0, "stop after so many requests are done; 0: no bound")
	fs.DurationVar(&f.idle, "idle", 0, "stop when no request came for so long; 0: never")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return usage(err)
		}
		c, err := r.open()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return f.run(ctx, r, c, args[0])
	}
	return cmd
}

func (f *respondFlags) check() error {
	faults := []error{checkWork(f.parallel, f.limit, f.idle)}
	if f.exec == "" {
		faults = append(faults, errors.New("respond needs --exec"))
	}
	if f.group == "" {
		faults = append(faults, errors.New("--group: it is empty; leave it out for "+responders))
	} else {
		faults = append(faults, checkGroup(f.group))
	}
	if f.contentType != "" {
		if err := wire.CheckContentType(f.contentType); err != nil {
			faults = append(faults, fmt.Errorf("--content-type: %w", err))
		}
	}
	return errors.Join(faults...)
}

func (f *respondFlags) run(ctx context.Context, r *remote, c *client.Client, topic string) error {
	if err := openResponders(ctx, c, topic, f.group); err != nil {
		return err
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	note := func(format string, args ...any) { fmt.Fprintf(r.err, "tidewire: "+format+"\n", args...) }
	p := &responder{
		server: c, shell: shell{command: f.exec, topic: topic, environ: r.environ}, contentType: f.contentType, err: r.err, note: note, end: end,
	}
	w := worker.New(worker.Config{
		Server: c, Topic: topic, Group: f.group, Member: f.member, Parallel: f.parallel, Limit: f.limit, Idle: f.idle, Note: note, Do: p.respond,
	})
	err := w.Run(working)
	if err == nil && ctx.Err() == nil && working.Err() != nil {
		err = context.Cause(working)
	}
	return errors.Join(err, p.print(r))
}

// openResponders makes a group where there is none. One that is there keeps its settings.
func openResponders(ctx context.Context, c *client.Client, topic, group string) error {
	_, err := c.Group(ctx, topic, group)
	if p := (*client.Problem)(nil); !errors.As(err, &p) || p.Code != fault.GroupNotFound.Code() {
		return err
	}
	mode, from := "shared", "latest" // nobody waits for the replies to what is there by now
	_, err = c.RegisterGroup(ctx, topic, client.GroupSettings{Group: group, Mode: &mode, From: &from})
	return err
}
