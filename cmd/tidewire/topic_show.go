package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

func newTopicList(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the topics",
		Example: "  tidewire topic list --output json | jq -r .name",
		Args:    noArguments,
	}
	r := addRemote(cmd, p)
	cmd.RunE = shows(r, func(ctx context.Context, c *client.Client, _ []string) ([]client.Topic, error) {
		return c.Topics(ctx)
	}, func(topics []client.Topic) error {
		head := []string{"TOPIC", "PARTITIONS", "REPLICAS", "MIN-INSYNC", "RECORDS", "RETENTION", "DURABILITY"}
		return list(r, head, topics, func(t client.Topic) json.RawMessage { return t.Raw }, func(t client.Topic) []string {
			return []string{
				t.Name, strconv.Itoa(len(t.Layout.Partitions)), strconv.Itoa(t.Replicas), strconv.Itoa(t.MinInsync),
				records(t), retention(t.Retention), t.Durability,
			}
		})
	})
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
	cmd.RunE = shows(r, func(ctx context.Context, c *client.Client, args []string) (client.Topic, error) {
		return c.Topic(ctx, args[0])
	}, r.describeTopic)
	return cmd
}

// describeTopic shows a topic.
func (r *remote) describeTopic(t client.Topic) error {
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
