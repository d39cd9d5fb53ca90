package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
)

// tailFlags are what tail is told.
type tailFlags struct {
	follow          bool
	from, cursor    string
	key, keyPrefix  string
	partition       int64
	limit           int64
	keySet, fromSet bool
}

func newTail(p process) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print the records of a topic, and follow it with -f",
		Long: `Tail prints the records of a topic: their values on a terminal, whole messages as
JSON lines in a pipe or with --output json.

Without -f it reads from --from (earliest if not given) to what is the end then.
With -f it starts at --from (latest if not given), goes on with what comes, and after
a lost connection or a restart of the server resumes where it was: nothing is
left out and nothing is printed twice.

At its end it says on the standard error with which --cursor to go on from there.`,
		Example: `  tidewire tail orders
  tidewire tail orders -f --from earliest --key ann
  tidewire tail orders --from 15m --output json | jq .value
  tidewire tail orders -f --from 2026-01-31T15:04:05Z --partition 3
  tidewire tail orders --cursor CURSOR`,
		Args: oneTopic,
	}
	r := addRemote(cmd, p)
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on with new records")
	fs.StringVar(&f.from, "from", "", "start at earliest, latest, a `time` (RFC 3339), or so long ago (15m)")
	fs.StringVar(&f.cursor, "cursor", "", "start at a `cursor` that an earlier tail named at its end, or a node gave")
	fs.StringVar(&f.key, "key", "", "only records of this key")
	fs.StringVar(&f.keyPrefix, "key-prefix", "", "only records whose key begins so")
	fs.Int64Var(&f.partition, "partition", -1, "only this partition")
	fs.Int64VarP(&f.limit, "limit", "n", 0, "stop after so many records; 0: no bound")
	hideDefault(fs, "partition")
	exclude(cmd, "from", "cursor")
	exclude(cmd, "key", "key-prefix")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.keySet, f.fromSet = fs.Changed("key"), fs.Changed("from")
		query, err := f.query(time.Now())
		if err != nil {
			return usage(err)
		}
		c, err := r.open()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		t := &tailer{remote: r, client: c, topic: args[0], limit: f.limit}
		if f.follow {
			err = t.follow(ctx, query)
		} else {
			err = t.read(ctx, query)
		}
		if ctx.Err() != nil {
			err = nil // asked to stop: what was printed is right
		}
		var problem *client.Problem
		if errors.As(err, &problem) && problem.Cursor != "" {
			return fmt.Errorf("%w: --cursor %s", err, problem.Cursor)
		}
		if problem == nil || problem.Code != fault.TopicNotFound.Code() { // whose places went with it
			t.offer() // also after an error, as when the token has expired meanwhile
		}
		return err
	}
	return cmd
}

// query makes the parameters of the first call: where to start, and what of
// the topic.
func (f tailFlags) query(now time.Time) (url.Values, error) {
	var faults []error
	q := url.Values{}
	if f.keySet {
		q.Set("key", f.key)
	}
	if f.keyPrefix != "" {
		q.Set("key_prefix", f.keyPrefix)
	}
	if f.partition < -1 || f.partition > 1<<32-1 {
		faults = append(faults, fmt.Errorf("--partition: %d is no partition", f.partition))
	}
	if f.limit < 0 {
		faults = append(faults, fmt.Errorf("--limit: %d is less than 0", f.limit))
	}
	if f.partition >= 0 {
		q.Set("partition", strconv.FormatInt(f.partition, 10))
	}
	from := f.from
	if !f.fromSet {
		from = "earliest"
		if f.follow {
			from = "latest"
		}
	}
	place, isTime, err := startAt(from, now)
	faults = append(faults, err)
	switch {
	case f.cursor != "":
		q.Set("cursor", f.cursor)
	// A poll of one partition starts at an offset or a time, in words of its own.
	case f.partition >= 0 && !f.follow && isTime:
		q.Set("at", place)
	case f.partition >= 0 && !f.follow:
		q.Set("offset", place)
	default:
		q.Set("from", place)
	}
	return q, errors.Join(faults...)
}

// startAt reads a place to start at: a word, a time, or how long ago.
func startAt(from string, now time.Time) (place string, isTime bool, err error) {
	if from == "earliest" || from == "latest" {
		return from, false, nil
	}
	if _, err := time.Parse(time.RFC3339Nano, from); err == nil {
		return from, true, nil
	}
	if ago, err := time.ParseDuration(from); err == nil && ago >= 0 {
		return now.Add(-ago).UTC().Format(time.RFC3339Nano), true, nil
	}
	return "", false, fmt.Errorf("--from: %q is none of earliest, latest, a time such as 2026-01-31T15:04:05Z, or so long ago, such as 15m or 168h", from)
}

// tailer prints the messages of one topic.
type tailer struct {
	*remote
	client  *client.Client
	topic   string
	limit   int64 // 0: none
	printed int64
	cursor  string // where to go on; empty: not known yet
	// behind is the cursor in front of the last record, where that named none: a stream
	// of several partitions names its place now and then.
	behind string
	// seen is the last offset printed of each partition: what a resumed stream
	// repeats is not printed again.
	seen map[uint32]int64
}

var errLimit = errors.New("as many as asked for")

// print prints one message, unless it is a repeat.
func (t *tailer) print(m client.Message) error {
	if last, ok := t.seen[m.Partition]; ok && m.Offset <= last {
		return nil
	}
	if t.seen == nil {
		t.seen = map[uint32]int64{}
	}
	t.seen[m.Partition] = m.Offset
	if err := printMessage(t.remote, m); err != nil {
		return err
	}
	if t.printed++; t.limit > 0 && t.printed >= t.limit {
		return errLimit
	}
	return nil
}

// valueText is a value as a person reads it.
func valueText(m client.Message) string {
	var text string
	switch {
	case m.Tombstone:
		return "(tombstone)"
	case m.Base64 != nil:
		return fmt.Sprintf("(%d bytes of %s)", len(*m.Base64), visible(m.ContentType))
	case len(m.Value) > 0 && m.Value[0] == '"' && json.Unmarshal(m.Value, &text) == nil:
		return visible(text)
	}
	return visible(string(m.Value))
}

func (t *tailer) note(format string, args ...any) {
	fmt.Fprintf(t.err, "tidewire: "+format+"\n", args...)
}

// offer says how to go on from where the tail ends.
func (t *tailer) offer() {
	if t.cursor == "" {
		return
	}
	again := ""
	if t.behind == t.cursor {
		again = " (the last few records may come again)"
	}
	t.note("go on from here with --cursor %s%s", t.cursor, again)
}

const pageRecords = 1000

// read prints from the start to the end as it is when it gets there.
func (t *tailer) read(ctx context.Context, query url.Values) error {
	for {
		n := int64(pageRecords)
		if t.limit > 0 {
			n = min(n, t.limit-t.printed)
		}
		query.Set("limit", strconv.FormatInt(n, 10))
		page, err := t.client.Poll(ctx, t.topic, query)
		if err != nil {
			return err
		}
		full := false
		for _, m := range page.Messages {
			switch err := t.print(m); {
			case errors.Is(err, errLimit):
				full = true // a page never holds more than that
			case err != nil:
				return err // its place is still in front of the page
			}
		}
		t.cursor = page.Cursor
		if full || page.End {
			return nil
		}
		if page.Cursor == "" {
			return errors.New("the server gave no cursor to go on with")
		}
		for _, name := range []string{"from", "offset", "at"} {
			query.Del(name)
		}
		query.Set("cursor", page.Cursor)
	}
}

const (
	firstPause   = 500 * time.Millisecond
	longestPause = 20 * time.Second
	// steadyAfter: a stream that lived so long has the pauses start over.
	steadyAfter = 10 * time.Second
)

// follow prints what comes, and resumes by the last event's id as long as ctx
// lives. Only the first connection must succeed.
func (t *tailer) follow(ctx context.Context, query url.Values) error {
	pause, connected := firstPause, false
	for {
		began := time.Now()
		s, err := t.client.Events(ctx, t.topic, query, t.cursor)
		var hint time.Duration // of the server, when to come back
		if err == nil {
			connected = true
			hint, err = t.stream(s)
			if printing := (*printError)(nil); !errors.As(err, &printing) {
				t.cursor = s.LastID()
			}
			s.Close()
			if time.Since(began) > steadyAfter {
				pause = firstPause
			}
		}
		switch {
		case errors.Is(err, errLimit), errors.Is(err, errSealed), ctx.Err() != nil:
			return nil
		case !connected || !passing(err):
			return err
		}
		// Full jitter spreads the clients of a node that went away.
		wait := hint + rand.N(pause)
		pause = min(2*pause, longestPause)
		t.note("%v; trying again in %s", err, wait.Round(time.Millisecond))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// passing reports whether a new connection may fare better.
func passing(err error) bool {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Retryable()
	}
	var printing *printError
	return !errors.As(err, &printing)
}

// printError is a failure of our own output, or of what the server sent.
type printError struct{ err error }

func (e *printError) Error() string { return e.err.Error() }
func (e *printError) Unwrap() error { return e.err }

var errCut = errors.New("the connection ended")

var errSealed = errors.New("the partition is sealed and read to its end")

// stream prints the events of one connection until that ends. The error says
// why; the duration is how long the server asks to stay away.
func (t *tailer) stream(s *client.Stream) (time.Duration, error) {
	var hint time.Duration
	why := ""
	for {
		e, err := s.Next()
		switch {
		case err == nil:
		case why != "":
			return hint, fmt.Errorf("the node closed the stream: %s", why)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return hint, errCut
		default:
			return hint, fmt.Errorf("%w: %w", errCut, err)
		}
		switch e.Name {
		case "message":
			m, err := client.ParseMessage(e.Data)
			if err != nil {
				return 0, &printError{err}
			}
			err = t.print(m)
			if err != nil && !errors.Is(err, errLimit) {
				return 0, &printError{err}
			}
			if t.cursor, t.behind = e.ID, ""; !e.Named {
				t.behind = e.ID
			}
			if err != nil {
				return 0, err
			}
		case "gap":
			// What follows may be another life of the topic: no offset counts as seen.
			clear(t.seen)
			t.note("gap: %s", visible(string(e.Data)))
		case "sealed":
			t.note("%v: %s", errSealed, visible(string(e.Data)))
			return 0, errSealed
		case "error":
			// The stream has ended for good, as when its topic was deleted.
			problem := &client.Problem{}
			if err := json.Unmarshal(e.Data, problem); err != nil {
				return 0, &printError{fmt.Errorf("an error of the stream is not as expected: %w", err)}
			}
			return problem.RetryAfter, problem
		case "closing":
			var c struct {
				Reason     string `json:"reason"`
				RetryAfter string `json:"retry_after"`
			}
			if json.Unmarshal(e.Data, &c) == nil {
				why = visible(c.Reason)
				if d, err := time.ParseDuration(c.RetryAfter); err == nil && d >= 0 && d < time.Minute {
					hint = d
				}
			}
		}
	}
}
