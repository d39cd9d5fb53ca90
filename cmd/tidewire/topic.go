package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/boot"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

func newTopic(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Create, list, describe, alter and delete topics",
		Args:  nearestCommand,
		RunE:  group,
	}
	cmd.AddCommand(newTopicCreate(p), newTopicList(p), newTopicDescribe(p), newTopicAlter(p), newTopicDelete(p))
	return cmd
}

// settingFlags are the flags of a topic's settings.
type settingFlags struct {
	partitions, replicas, minInsync int
	retentionAge                    time.Duration
	retentionBytes, maxMessageBytes string
	durability                      string
	unclean                         bool
	idempotencyWindow               time.Duration
}

// add defines the flags. A setting that is not given is the node's to choose;
// to change a topic only those given are sent.
func (s *settingFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&s.replicas, "replicas", 0, "copies of each partition")
	fs.IntVar(&s.minInsync, "min-insync", 0, "copies that must be in sync to take records")
	fs.DurationVar(&s.retentionAge, "retention-age", 168*time.Hour, "delete records older than this; 0: never")
	fs.StringVar(&s.retentionBytes, "retention-bytes", "0", "keep so much a partition, as 64MiB; 0: no bound")
	fs.StringVar(&s.maxMessageBytes, "max-message-bytes", "1MiB", "largest record: key, value and headers")
	fs.StringVar(&s.durability, "durability", "fsync", "what an acknowledgement promises: fsync or replicated")
	fs.BoolVar(&s.unclean, "unclean", false, "let a replica that is not in sync lead when no other is left, and lose records")
	fs.DurationVar(&s.idempotencyWindow, "idempotency-window", 2*time.Minute, "how long an Idempotency-Key is remembered")
	for _, name := range []string{"retention-age", "idempotency-window"} {
		f := fs.Lookup(name)
		d, _ := fs.GetDuration(name) // defined above
		f.DefValue = wire.ShortDuration(d)
	}
}

// given collects the settings whose flags were given; the rest stays the server's.
func (s *settingFlags) given(fs *pflag.FlagSet) (client.TopicSettings, error) {
	var t client.TopicSettings
	if fs.Changed("partitions") {
		t.Partitions = &s.partitions
	}
	if fs.Changed("replicas") {
		t.Replicas = &s.replicas
	}
	if fs.Changed("min-insync") {
		t.MinInsync = &s.minInsync
	}
	if fs.Changed("retention-age") || fs.Changed("retention-bytes") {
		t.Retention = &client.Retention{}
	}
	if fs.Changed("retention-age") {
		age := wire.ShortDuration(s.retentionAge)
		t.Retention.Age = &age
	}
	if fs.Changed("retention-bytes") {
		n, err := boot.ParseSize(s.retentionBytes)
		if err != nil {
			return t, usagef("--retention-bytes: %w", err)
		}
		t.Retention.Bytes = &n
	}
	if fs.Changed("max-message-bytes") {
		n, err := boot.ParseSize(s.maxMessageBytes)
		if err != nil {
			return t, usagef("--max-message-bytes: %w", err)
		}
		t.MaxMessageBytes = &n
	}
	if fs.Changed("durability") {
		t.Durability = &s.durability
	}
	if fs.Changed("unclean") {
		t.Unclean = &s.unclean
	}
	if fs.Changed("idempotency-window") {
		w := wire.ShortDuration(s.idempotencyWindow)
		t.IdempotencyWindow = &w
	}
	return t, nil
}

func newTopicCreate(p process) *cobra.Command {
	var s settingFlags
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Create a topic; the same again is no error",
		Example: `  tidewire topic create orders --partitions 4
  tidewire topic create audit --retention-age 8760h --max-message-bytes 64KiB`,
		Args: oneTopic,
	}
	r := addRemote(cmd, p)
	cmd.Flags().IntVar(&s.partitions, "partitions", 1, "how many partitions, up to 256")
	s.add(cmd.Flags())
	cmd.Flags().Lookup("replicas").Usage += "; min(3, brokers) if not given"
	cmd.Flags().Lookup("min-insync").Usage += "; max(1, replicas - 1) if not given"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		settings, err := s.given(cmd.Flags())
		if err != nil {
			return err
		}
		if err := ident.CheckTopicName(args[0]); err != nil {
			return usage(err)
		}
		settings.Name = args[0]
		t, created, err := c.CreateTopic(cmd.Context(), settings)
		if err != nil {
			return err
		}
		if !r.table() {
			return r.line(t.Raw)
		}
		what := "created"
		if !created {
			what = "is there already, just so:"
		}
		_, err = fmt.Fprintf(r.out, "%s %s with %d partitions\n", t.Name, what, len(t.Layout.Partitions))
		return err
	}
	return cmd
}

func newTopicList(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the topics",
		Example: "  tidewire topic list --output json | jq -r .name",
		Args:    noArguments,
	}
	r := addRemote(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		topics, err := c.Topics(cmd.Context())
		if err != nil {
			return err
		}
		head := []string{"TOPIC", "PARTITIONS", "REPLICAS", "MIN-INSYNC", "RECORDS", "RETENTION", "DURABILITY"}
		return list(r, head, topics, func(t client.Topic) json.RawMessage { return t.Raw }, func(t client.Topic) []string {
			return []string{
				t.Name, strconv.Itoa(len(t.Layout.Partitions)), strconv.Itoa(t.Replicas), strconv.Itoa(t.MinInsync),
				records(t), retention(t.Retention), t.Durability,
			}
		})
	}
	return cmd
}

// records counts what is kept of a topic, as far as the leaders of its partitions said:
// 12+ where some did not, - where none did.
func records(t client.Topic) string {
	n, known := int64(0), 0
	for _, p := range t.Layout.Partitions {
		if p.HW != nil && p.Earliest != nil {
			n += *p.HW - *p.Earliest
			known++
		}
	}
	text := strconv.FormatInt(n, 10)
	switch {
	case known == len(t.Layout.Partitions):
		return text
	case known > 0:
		return text + "+"
	}
	return ""
}

// place is an offset that may not be known.
func place(o *int64) string {
	if o == nil {
		return "" // shown as -
	}
	return strconv.FormatInt(*o, 10)
}

func retention(r client.Retention) string {
	var parts []string
	if r.Age != nil && *r.Age != "0s" && *r.Age != "0" {
		parts = append(parts, *r.Age)
	}
	if r.Bytes != nil && *r.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes", *r.Bytes))
	}
	if len(parts) == 0 {
		return "for ever"
	}
	return strings.Join(parts, ", ")
}

func newTopicDescribe(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "Show a topic's settings and partitions",
		Example: "  tidewire topic describe orders",
		Args:    oneTopic,
	}
	r := addRemote(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		t, err := c.Topic(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return describe(r, t)
	}
	return cmd
}

func describe(r *remote, t client.Topic) error {
	if !r.table() {
		return r.line(t.Raw)
	}
	err := rows(r.out, [][]string{
		{"topic", t.Name},
		{"id", t.ID},
		{"replicas", fmt.Sprintf("%d, %d in sync needed", t.Replicas, t.MinInsync)},
		{"retention", retention(t.Retention)},
		{"largest record", fmt.Sprintf("%d bytes", t.MaxMessageBytes)},
		{"durability", t.Durability},
		{"unclean", strconv.FormatBool(t.Unclean)},
		{"idempotency window", t.IdempotencyWindow},
		{"generation", strconv.FormatUint(uint64(t.Layout.Generation), 10)},
	})
	if err != nil {
		return err
	}
	table := [][]string{{"PARTITION", "STATE", "LEADER", "EPOCH", "EARLIEST", "HW", "ISR", "HASHES"}}
	for _, p := range t.Layout.Partitions {
		table = append(table, []string{
			strconv.FormatUint(uint64(p.ID), 10), p.State, p.Leader, strconv.FormatUint(uint64(p.LeaderEpoch), 10),
			place(p.Earliest), place(p.HW),
			fmt.Sprintf("%d/%d", len(p.ISR), len(p.Replicas)), fmt.Sprintf("%08x-%08x", p.Lo, p.Hi-1),
		})
	}
	fmt.Fprintln(r.out)
	return rows(r.out, table)
}

func newTopicAlter(p process) *cobra.Command {
	var s settingFlags
	cmd := &cobra.Command{
		Use:     "alter TOPIC",
		Short:   "Change settings of a topic; those that are not given stay",
		Example: "  tidewire topic alter orders --retention-age 24h",
		Args:    oneTopic,
	}
	r := addRemote(cmd, p)
	s.add(cmd.Flags())
	hideDefault(cmd.Flags(), "retention-age", "retention-bytes", "max-message-bytes", "durability", "idempotency-window")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		settings, err := s.given(cmd.Flags())
		if err != nil {
			return err
		}
		if settings == (client.TopicSettings{}) {
			return usagef("topic alter needs at least one setting to change")
		}
		t, err := c.AlterTopic(cmd.Context(), args[0], settings)
		if err != nil {
			return err
		}
		return describe(r, t)
	}
	return cmd
}

func newTopicDelete(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic and every record of it",
		Long: `Delete deletes a topic and every record of it. At a terminal it asks first; a script
says --yes.`,
		Example: "  tidewire topic delete orders --yes",
		Args:    oneTopic,
	}
	deletes(cmd, p, func(args []string) removal {
		topic := args[0]
		return removal{
			name: topic, what: "every record of " + visible(topic), does: "topic delete deletes",
			line:   map[string]string{"topic": topic},
			delete: func(ctx context.Context, c *client.Client) error { return c.DeleteTopic(ctx, topic) },
		}
	})
	return cmd
}
