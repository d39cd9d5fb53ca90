package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
	"tidewire/internal/bench/proc"
)

// benchGroups are the flags of bench groups.
type benchGroups struct {
	*bench
	records  int
	members  int
	mode     string
	inFlight int
	batch    int
	idle     int
	settle   time.Duration
}

// Bounds of what is asked of a consumer group.
const (
	maxBacklog     = 10_000_000
	maxIdleGroups  = 100_000
	mostInFlight   = 1024 // as max_in_flight of a group
	recordOverhead = 64   // of a record in a log, about
)

func newBenchGroups(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Measure consumer groups: acknowledging a backlog, or groups that stand idle",
		Long: `Groups publishes a backlog of records, and has the members of a consumer group take and
acknowledge all of it over WebSocket, in each run a new group. It prints records
acknowledged a second, how long an acknowledgement takes to be confirmed (which is when
the coordinators hold it), entries of their Raft log and commits of brokers a second,
and what was delivered more than once.

With --idle-groups it registers so many groups without members on a topic of one
partition instead, and prints what each process uses meanwhile, and its memory per group.`,
		Example: `  tidewire bench groups --spawn --nodes 3 --partitions 6 --members 12
  tidewire bench groups --spawn --nodes 3 --partitions 6 --members 12 --mode shared --batch 1
  tidewire bench groups --spawn --nodes 3 --idle-groups 10000`,
	}
	b := &benchGroups{bench: addBench(cmd, p)}
	fs := cmd.Flags()
	fs.IntVar(&b.bytes, "bytes", 100, fmt.Sprintf("size of a value, %d or more", message.MinBytes))
	fs.IntVar(&b.runs, "runs", 3, "how many runs")
	fs.IntVar(&b.records, "records", 500_000, "records of the backlog")
	fs.IntVar(&b.members, "members", 12, "members of the group, a connection each")
	fs.StringVar(&b.mode, "mode", "exclusive", "of the group: exclusive or shared")
	fs.IntVar(&b.inFlight, "in-flight", 256, "credit of each member, and max_in_flight of the group")
	fs.IntVar(&b.batch, "batch", 256, "records of an acknowledgement, at most")
	fs.IntVar(&b.idle, "idle-groups", 0, "measure so many groups without members instead")
	fs.DurationVar(&b.settle, "settle", 10*time.Second, "with --idle-groups: how long the server is left alone before it is looked at, and how long it is looked at")
	fs.BoolVar(&b.noFloors, "no-floors", false, "leave out the floors")
	complete(cmd, "mode", "exclusive", "shared")
	b.duration = floorTime
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.check(); err != nil {
			return err
		}
		if err := proc.RaiseFiles(b.members); err != nil {
			return err
		}
		if b.idle > 0 {
			return b.run(cmd.Context(), b.measureIdle)
		}
		return b.run(cmd.Context(), b.measure)
	}
	return cmd
}

func (b *benchGroups) check() error {
	faults := []error{
		within("records", b.records, 1, maxBacklog), within("members", b.members, 1, maxBenchConnections), choice("mode", b.mode, "exclusive", "shared"),
		within("in-flight", b.inFlight, 1, mostInFlight), within("batch", b.batch, 1, 10_000), within("idle-groups", b.idle, 0, maxIdleGroups),
		atLeast("settle", b.settle, 0),
	}
	if b.topic != "" {
		faults = append(faults, errors.New("--topic: the groups are measured on a topic that holds nothing else: leave --topic out, and one is made"))
	}
	if b.records > benchFileBytes/(b.bytes+recordOverhead) {
		faults = append(faults, fmt.Errorf("--records and --bytes: the topic that is made keeps no more than %d bytes", benchFileBytes))
	}
	if b.idle > 0 && b.partitions != 1 {
		faults = append(faults, errors.New("--idle-groups: they are measured on a topic of one partition"))
	}
	if b.idle > 0 && !b.spawn && b.pid == 0 {
		faults = append(faults, errors.New("--idle-groups: the server's memory is what is measured: name its process with --server-pid, or let --spawn start one"))
	}
	return b.bench.check(errors.Join(faults...))
}

// The publishers of the backlog.
const (
	fillPublishers = 8
	fillWindow     = 500
)

func (b *benchGroups) measure(ctx context.Context, s *subject) error {
	fill := load.Publish{
		Target: s.target, Transport: load.WebSocket, Publishers: fillPublishers, Window: fillWindow,
		Records: load.Records{Topic: s.topic, Bytes: b.bytes, Acks: "all"},
	}
	echo := fill
	echo.Publishers, echo.Window = b.members, 1
	if err := b.floors(ctx, s, 1, "websocket echo", echo); err != nil {
		return err
	}
	if err := fill.Fill(ctx, b.records, s.bar); err != nil {
		return err
	}
	runs := make([]load.GroupRun, 0, b.runs)
	for i := range b.runs {
		w := load.Groups{
			Target: s.target, Topic: s.topic, Group: "bench-" + strconv.Itoa(i+1), Mode: b.mode,
			Records: b.records, Members: b.members, InFlight: b.inFlight, Batch: b.batch,
		}
		run, err := w.Run(ctx, i+1, s.bar)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		if err := s.client.DeleteGroup(ctx, s.topic, w.Group); err != nil {
			return err
		}
	}
	s.bar.finish()
	return b.print(runs, s)
}

func (b *benchGroups) print(runs []load.GroupRun, s *subject) error {
	plain := make([]figure.Run, len(runs))
	for i, r := range runs {
		plain[i] = r.Run
	}
	if i := figure.MarkBest(plain, 0); i >= 0 {
		runs[i].Best = true
	}
	settings := []setting{
		{"nodes", b.nodes},
		{"partitions", s.partitions},
		{"records", b.records},
		{"bytes", b.bytes},
		{"members", b.members},
		{"mode", b.mode},
		{"in_flight", b.inFlight},
		{"batch", b.batch},
	}
	if !b.table() {
		for _, r := range runs {
			err := b.line(struct {
				Kind  string         `json:"kind"` // run
				Bench string         `json:"bench"`
				Load  map[string]any `json:"load"`
				load.GroupRun
			}{"run", "groups", named(settings), r})
			if err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(b.out, "groups: %s\n", told(settings))
	table := [][]string{{
		"RUN", "ACKED/s", "P50 µs", "P99 µs", "P99.9 µs", "RAFT/s", "COMMITS/s", "SERVER µs", "CORES", "SWITCHES", "GENERATOR µs", "CORES", "AGAIN", "STALE",
	}}
	for _, r := range runs {
		all := runRow(r.Run)
		table = append(table, []string{
			all[0], all[1], all[2], all[4], all[5], perSecond(r.Entries), perSecond(r.Commits), all[8], all[9], all[10], all[13], all[14], count(r.Dupes), count(r.Stale),
		})
	}
	if err := rows(b.out, filled(table)); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "* the best run. P50 and the like: until an acknowledgement is confirmed. RAFT/s: entries of the coordinators' log. SERVER µs is processor time of all nodes per record.")
	for _, text := range s.remarks {
		fmt.Fprintln(b.out, visible(text))
	}
	return nil
}
