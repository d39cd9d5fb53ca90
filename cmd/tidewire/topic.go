package main

import (
	"context"
	"fmt"
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
		Short: "Create, list, describe, alter, purge and delete topics",
		Args:  nearestCommand,
		RunE:  group,
	}
	cmd.AddCommand(newTopicCreate(p), newTopicList(p), newTopicDescribe(p), newTopicAlter(p), newTopicPurge(p), newTopicDelete(p))
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
		return r.describeTopic(t)
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
