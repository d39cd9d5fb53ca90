package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/producer"
	"tidewire/internal/wire"
)

// publishFlags are what publish is told.
type publishFlags struct {
	key, keyField string
	partition     int64
	headers       []string
	contentType   string
	acks          string
	timeout       time.Duration
	rate          float64
	keySet        bool
	batch         int
	noProgress    bool
}

func newPublish(p process) *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:   "publish TOPIC [FILE...]",
		Short: "Publish files or the standard input, a record a line",
		Long: `Publish reads files, or the standard input where none (or -) is given, and publishes
each line as one record. A line that is JSON becomes a JSON record, other text a
text record, anything else plain bytes; --content-type says it for all. Empty
lines are left out.

Within one run every record is kept exactly once: publish is a producer with an
identity and numbers its records by partition, so what it repeats after a lost
connection or a restart of the node is recognised there (not with --acks none).
Another run is another producer: the same file again is kept again. Records of one
key keep their order.

The summary counts what was read, sent, kept, found kept already by an earlier try
(duplicates), refused, and left unknown or not sent; with --acks none it counts what
was taken in, of which nobody says whether it is kept. The first refused lines are
named with the reason on the standard error, and the exit code is 1.`,
		Example: `  tidewire publish positions bus-positions.jsonl --key-field vehicle
  journalctl -f -o json | tidewire publish logs --key-field _SYSTEMD_UNIT
  echo hello | tidewire publish greetings --key ann --header source=shell`,
		Args: topicFirst,
	}
	r := addRemote(cmd, p)
	fs := cmd.Flags()
	fs.StringVar(&f.key, "key", "", "the key of every record")
	fs.StringVar(&f.keyField, "key-field", "", "take the key from this `field` of the line's JSON")
	fs.Int64Var(&f.partition, "partition", -1, "the partition of every record; by key, or spread, if not given")
	fs.StringArrayVar(&f.headers, "header", nil, "a `name=value` for every record; may be repeated")
	fs.StringVar(&f.contentType, "content-type", "", "the content `type` of every record; by its looks if not given")
	fs.StringVar(&f.acks, "acks", "all", "wait until a record is kept by all in-sync replicas, by the leader, or by none: all, leader or none")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "give up after so long without progress")
	fs.Float64Var(&f.rate, "rate", 0, "records a second at most; 0: no bound")
	fs.IntVar(&f.batch, "batch", 500, fmt.Sprintf("records sent at once, up to %d", producer.MaxBatchRecords))
	fs.BoolVar(&f.noProgress, "no-progress", false, "show no progress bar on a terminal")
	hideDefault(fs, "partition")
	exclude(cmd, "key", "key-field")
	_ = cmd.RegisterFlagCompletionFunc("acks", cobra.FixedCompletions([]string{"all", "leader", "none"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.keySet = fs.Changed("key")
		enc, err := f.check()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return publish(ctx, r, f, enc, args[0], args[1:])
	}
	return cmd
}

// check joins the faults of the flags and makes the encoder of the lines.
func (f publishFlags) check() (encoder, error) {
	var faults []error
	switch f.acks {
	case "all", "leader", "none":
	default:
		faults = append(faults, fmt.Errorf("--acks: %q is none of all, leader, none", f.acks))
	}
	if f.batch < 1 || f.batch > producer.MaxBatchRecords {
		faults = append(faults, fmt.Errorf("--batch: %d is not between 1 and %d", f.batch, producer.MaxBatchRecords))
	}
	if f.timeout < time.Second {
		faults = append(faults, fmt.Errorf("--timeout: %s is less than a second", f.timeout))
	}
	if !(f.rate >= 0) || math.IsInf(f.rate, 0) { // nor is NaN
		faults = append(faults, fmt.Errorf("--rate: %g is no number of records a second", f.rate))
	}
	if f.keySet && f.key == "" {
		faults = append(faults, errors.New("--key: it is empty; leave it out for records without a key"))
	}
	if f.partition < -1 || f.partition > 1<<32-1 {
		faults = append(faults, fmt.Errorf("--partition: %d is no partition", f.partition))
	}
	enc, err := newEncoder(f)
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return encoder{}, usage(err)
	}
	return enc, nil
}

// publish runs the producer over the input and prints what became of it.
func publish(ctx context.Context, r *remote, f publishFlags, enc encoder, topic string, files []string) error {
	c, err := r.open()
	if err != nil {
		return err
	}
	in, err := openInputs(r.in, files)
	if err != nil {
		return err
	}
	t, err := c.Topic(ctx, topic)
	if err != nil {
		return err
	}
	if f.partition >= 0 && !slices.ContainsFunc(t.Layout.Partitions, func(p client.Partition) bool {
		return int64(p.ID) == f.partition && p.State == "open"
	}) {
		return &exitError{exitRefused, fmt.Errorf("--partition: topic %s has no open partition %d; it has %d, from 0", topic, f.partition, len(t.Layout.Partitions))}
	}
	bar := newProgress(r.process, f.noProgress, in.bytes)
	report := newReport(topic, r.err, bar)
	p, err := producer.New(producer.Config{
		Sender: c, Topic: topic, Layout: t.Layout.Partitions, Acks: f.acks, Timeout: f.timeout,
		RequestTimeout: min(5*time.Second, f.timeout), BatchRecords: f.batch,
		Outcome: report.outcome,
		Retry:   report.retry,
	})
	if err != nil {
		return err
	}

	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	records := make(chan producer.Record)
	read := make(chan error, 1) // why the reading ended
	var wg sync.WaitGroup
	wg.Go(func() {
		defer in.close()
		defer close(records)
		read <- readLines(reading, in, enc, f, report, bar, records)
	})
	gaveUp := p.Run(ctx, records)
	var readErr error
	if ctx.Err() == nil && gaveUp == nil {
		readErr = <-read
		wg.Wait()
	}
	// Else the reader may sit in a read of a terminal or a pipe, which cannot
	// be cut short: the process ends without it.
	stopReading()
	bar.finish()
	if err := report.print(r); err != nil {
		return err
	}
	switch {
	case gaveUp != nil:
		return gaveUp
	case readErr != nil:
		return readErr
	case ctx.Err() != nil:
		return &exitError{exitFailed, errors.New("interrupted: what was read is sent, the rest is not")}
	case report.failed() > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}

// readLines turns lines into records until the input or ctx ends.
func readLines(ctx context.Context, in *inputs, enc encoder, f publishFlags, report *report, bar progress, out chan<- producer.Record) error {
	limit := rate.NewLimiter(rate.Inf, 1)
	if f.rate > 0 {
		limit = rate.NewLimiter(rate.Limit(f.rate), max(1, int(f.rate/20)))
	}
	var partition *uint32
	if f.partition >= 0 {
		n := uint32(f.partition)
		partition = &n
	}
	for {
		l, ok, err := in.next()
		if err != nil || !ok {
			return err
		}
		bar.read(in.done())
		if len(l.text) == 0 && !l.tooLong {
			report.blank()
			continue
		}
		rec, err := enc.encode(l)
		if err != nil {
			report.unfit(rec, err)
			continue
		}
		rec.Partition = partition
		if limit.Wait(ctx) != nil {
			return nil
		}
		select {
		case out <- rec:
		case <-ctx.Done():
			return nil
		}
	}
}

var _ producer.Sender = (*client.Client)(nil)

// encoder makes a line of ndjson of a line of input.
type encoder struct {
	key         string
	keyField    string
	contentType string
	headers     []byte // as a JSON object; nil: none
}

func newEncoder(f publishFlags) (encoder, error) {
	e := encoder{key: f.key, keyField: f.keyField, contentType: f.contentType}
	var faults []error
	if f.contentType != "" {
		if err := wire.CheckContentType(f.contentType); err != nil {
			faults = append(faults, fmt.Errorf("--content-type: %w", err))
		}
	}
	if f.key != "" {
		if _, err := wire.Key(f.key); err != nil {
			faults = append(faults, fmt.Errorf("--key: %w", err))
		}
	}
	headers, err := headersJSON(f.headers)
	if err != nil {
		faults = append(faults, err)
	}
	e.headers = headers
	return e, errors.Join(faults...)
}
