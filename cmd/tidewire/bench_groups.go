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
	quiet    time.Duration
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
	b.addBytes(cmd, 100)
	b.number(cmd, &b.repeats, "runs", 3, 1, 1000, "how many runs")
	b.number(cmd, &b.records, "records", 500_000, 1, maxBacklog, "records of the backlog")
	b.number(cmd, &b.members, "members", 12, 1, maxBenchConnections, "members of the group, a connection each")
	b.modeOf(cmd, &b.mode, "exclusive", "the group")
	b.number(cmd, &b.inFlight, "in-flight", 256, 1, mostInFlight, "credit of each member, and max_in_flight of the group")
	b.number(cmd, &b.batch, "batch", 256, 1, 10_000, "records of an acknowledgement, at most")
	b.number(cmd, &b.idle, "idle-groups", 0, 0, maxIdleGroups, "measure so many groups without members instead")
	b.span(cmd, &b.quiet, "settle", 10*time.Second, 0, "with --idle-groups: how long the server is left alone before it is looked at, and how long it is looked at")
	cmd.Flags().BoolVar(&b.noFloors, "no-floors", false, "leave out the floors")
	b.duration = floorTime
	b.runs(cmd, b)
	return cmd
}

func (b *benchGroups) connections() int { return b.members }

func (b *benchGroups) settle() error {
	faults := []error{b.topicOfItsOwn("the groups are measured on a topic that holds nothing else")}
	if b.records > benchFileBytes/(max(b.bytes, 0)+recordOverhead) {
		faults = append(faults, fmt.Errorf("--records and --bytes: the topic that is made keeps no more than %d bytes", benchFileBytes))
	}
	if b.idle > 0 && b.partitions != 1 {
		faults = append(faults, errors.New("--idle-groups: they are measured on a topic of one partition"))
	}
	if b.idle > 0 {
		faults = append(faults, b.processKnown("--idle-groups: "))
	}
	return errors.Join(faults...)
}

// The publishers of the backlog.
const (
	fillPublishers = 8
	fillWindow     = 500
)

func (b *benchGroups) measure(ctx context.Context, s *subject) error {
	if b.idle > 0 {
		return b.measureIdle(ctx, s)
	}
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
	runs := make([]load.GroupRun, 0, b.repeats)
	for i := range b.repeats {
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
