package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/worker"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// pageMessages is how many messages are printed before they are acknowledged together.
const pageMessages = 200

// consumeFlags are what consume is told.
type consumeFlags struct {
	group, member  string
	exec           string
	parallel       int
	limit          int64
	idle           time.Duration
	mode, from     string
	lease, session time.Duration
	maxDeliveries  int
	backoff        time.Duration
	deadLetter     string
	maxInFlight    int
}

func newConsume(p process) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC --group GROUP",
		Short: "Work on the records of a topic as a member of a group",
		Long: `Consume joins a consumer group, takes records and acknowledges them when they are done.
A group that does not exist is registered with the settings given; one that does keeps
its own, and other ones given are an error.

With --exec a shell runs the command for each record: its standard input is the
record's value, and it finds TIDEWIRE_TOPIC, TIDEWIRE_PARTITION, TIDEWIRE_OFFSET,
TIDEWIRE_KEY, TIDEWIRE_HEADERS (as JSON), TIDEWIRE_CONTENT_TYPE, TIDEWIRE_DELIVERY and
TIDEWIRE_MESSAGE (the whole message as JSON) in its environment. Exit code 0 acknowledges
the record, 65 rejects it (it is not delivered again and goes to the dead-letter topic),
any other gives it back to be delivered again.
A command that runs for longer than the lease keeps the record. Without --exec each
record is printed, as tail prints it, and acknowledged.

Each record is delivered at least once. Ctrl-C finishes what is in hand and leaves.`,
		Example: `  tidewire consume orders --group billing --exec './bill.sh'
  tidewire consume orders --group audit --from latest --output json
  tidewire consume thumbnails --group workers --mode shared --parallel 8 --exec 'convert - -resize 64 "out/$TIDEWIRE_OFFSET.png"'
  tidewire consume orders --group nightly --idle 10s --exec ./import.sh`,
		Args: oneTopic,
	}
	r := addRemote(cmd, p)
	f.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		settings, err := f.settings(cmd.Flags(), time.Now())
		if err != nil {
			return usage(err)
		}
		c, err := r.open()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return f.run(ctx, r, c, args[0], settings)
	}
	return cmd
}

func (f *consumeFlags) add(fs *pflag.FlagSet) {
	fs.StringVarP(&f.group, "group", "g", "", "the `group` to be a member of")
	fs.StringVar(&f.member, "member", "", "the member's `name`: one that comes back under it within its session keeps its place")
	fs.StringVar(&f.exec, "exec", "", "run this `command` for each record")
	fs.IntVar(&f.parallel, "parallel", 1, "so many commands at a time, those of one key one after the other")
	fs.Int64VarP(&f.limit, "limit", "n", 0, "stop after so many records are done; 0: no bound")
	fs.DurationVar(&f.idle, "idle", 0, "stop when no record came for so long; 0: never")
	fs.StringVar(&f.mode, "mode", "", "exclusive (a partition has one member, in order) or shared (any member, any record)")
	fs.StringVar(&f.from, "from", "", "where a new group begins: earliest, latest, a `time` (RFC 3339), or so long ago (15m)")
	fs.DurationVar(&f.lease, "lease", 0, "how long a member may hold a record without a word")
	fs.DurationVar(&f.session, "session", 0, "how long a member may be silent")
	fs.IntVar(&f.maxDeliveries, "max-deliveries", 0, "deliver a record that fails so often, then dead-letter it")
	fs.DurationVar(&f.backoff, "backoff", 0, "wait so long before the second delivery; it doubles")
	fs.StringVar(&f.deadLetter, "dead-letter", "", "`topic` for records that failed for good")
	fs.IntVar(&f.maxInFlight, "max-in-flight", 0, "records in one member's hands at a time")
}

// settings are those of the group that were given.
func (f *consumeFlags) settings(fs *pflag.FlagSet, now time.Time) (client.GroupSettings, error) {
	faults := []error{checkWork(f.parallel, f.limit, f.idle)}
	if f.group == "" {
		faults = append(faults, errors.New("consume needs --group"))
	} else {
		faults = append(faults, checkGroup(f.group))
	}
	s := client.GroupSettings{Group: f.group}
	if fs.Changed("mode") {
		s.Mode = &f.mode
	}
	if fs.Changed("from") {
		from, _, err := startAt(f.from, now)
		faults = append(faults, err)
		s.From = &from
	}
	for name, into := range map[string]**string{"lease": &s.Lease, "session": &s.Session, "backoff": &s.Backoff} {
		if fs.Changed(name) {
			d, _ := fs.GetDuration(name) // defined above
			text := wire.ShortDuration(d)
			*into = &text
		}
	}
	if fs.Changed("max-deliveries") {
		s.MaxDeliveries = &f.maxDeliveries
	}
	if fs.Changed("dead-letter") {
		s.DeadLetter = &f.deadLetter
	}
	if fs.Changed("max-in-flight") {
		s.MaxInFlight = &f.maxInFlight
	}
	return s, errors.Join(faults...)
}

// checkWork checks what commands have that work on messages of a group.
func checkWork(parallel int, limit int64, idle time.Duration) error {
	var faults []error
	if parallel < 1 || parallel > 1000 {
		faults = append(faults, fmt.Errorf("--parallel: %d is not from 1 to 1000", parallel))
	}
	if limit < 0 {
		faults = append(faults, fmt.Errorf("--limit: %d is less than 0", limit))
	}
	if idle < 0 {
		faults = append(faults, fmt.Errorf("--idle: %s is less than 0", idle))
	}
	return errors.Join(faults...)
}

func (f *consumeFlags) run(ctx context.Context, r *remote, c *client.Client, topic string, settings client.GroupSettings) error {
	if err := register(ctx, c, topic, settings); err != nil {
		return err
	}
	cfg := worker.Config{
		Server: c, Topic: topic, Group: f.group, Member: f.member, Limit: f.limit, Idle: f.idle,
		Note: func(format string, args ...any) { fmt.Fprintf(r.err, "tidewire: "+format+"\n", args...) },
	}
	if f.exec != "" {
		cfg.Parallel = f.parallel
		sh := shell{command: f.exec, topic: topic, environ: r.environ}
		cfg.Do = func(ctx context.Context, m client.Leased) error { return sh.consume(ctx, m, r.out, r.err) }
	} else {
		cfg.Parallel = pageMessages
		cfg.Each = func(m client.Leased) error { return printMessage(r, m.Message) }
	}
	w := worker.New(cfg)
	err := w.Run(ctx)
	fmt.Fprintf(r.err, "tidewire: %s records done\n", strconv.FormatInt(w.Done(), 10))
	return err
}

// register makes the group. Where it exists only the settings that were given must fit;
// --from says where a new one begins, and nothing of one that exists.
func register(ctx context.Context, c *client.Client, topic string, s client.GroupSettings) error {
	if _, err := c.Group(ctx, topic, s.Group); err == nil {
		s.From = nil
	} else if problem := (*client.Problem)(nil); !errors.As(err, &problem) || problem.Code != fault.GroupNotFound.Code() {
		return err
	}
	_, err := c.RegisterGroup(ctx, topic, s)
	return err
}

// printMessage prints a message as a person, or a pipe, wants it.
func printMessage(r *remote, m client.Message) error {
	var err error
	if r.table() {
		_, err = fmt.Fprintln(r.out, valueText(m))
	} else {
		err = r.line(m.Raw)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
