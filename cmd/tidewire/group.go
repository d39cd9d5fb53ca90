package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

func newGroup(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "List, describe, move and delete consumer groups",
		Args:  nearestCommand,
		RunE:  group,
	}
	cmd.AddCommand(newGroupList(p), newGroupDescribe(p), newGroupReset(p), newGroupDelete(p))
	return cmd
}

func newGroupList(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list TOPIC",
		Aliases: []string{"ls"},
		Short:   "List the groups of a topic",
		Example: "  tidewire group list orders",
		Args:    oneTopic,
	}
	r := addRemote(cmd, p)
	cmd.RunE = shows(r, func(ctx context.Context, c *client.Client, args []string) ([]client.Group, error) {
		return c.Groups(ctx, args[0])
	}, func(groups []client.Group) error {
		head := []string{"GROUP", "MODE", "MEMBERS", "LEASE", "SESSION", "MAX-DELIVERIES", "DEAD-LETTERS"}
		return list(r, head, groups, func(g client.Group) json.RawMessage { return g.Raw }, func(g client.Group) []string {
			return []string{g.Group, g.Mode, strconv.Itoa(len(g.Members)), g.Lease, g.Session, strconv.Itoa(g.MaxDeliveries), g.DeadLetter}
		})
	})
	return cmd
}

func newGroupDescribe(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe TOPIC GROUP",
		Short: "Show a group's settings, its members, and how far it has come",
		Long: `Describe shows a group: its settings, its members with what they own, and of each
partition what is committed, in flight, behind (LAG), and dead. What a partition's
leader could not be asked is shown as -.`,
		Example: `  tidewire group describe orders billing
  tidewire group describe orders billing --output json | jq '[.partitions[].lag] | add'`,
		Args: topicAndGroup,
	}
	r := addRemote(cmd, p)
	cmd.RunE = shows(r, func(ctx context.Context, c *client.Client, args []string) (client.Group, error) {
		return c.Group(ctx, args[0], args[1])
	}, r.describeGroup)
	return cmd
}

// describeGroup shows a group.
func (r *remote) describeGroup(g client.Group) error {
	if !r.table() {
		return r.line(g.Raw)
	}
	err := rows(r.out, [][]string{
		{"group", g.Group},
		{"mode", g.Mode},
		{"lease", g.Lease},
		{"session", g.Session},
		{"deliveries", fmt.Sprintf("%d, then to %s", g.MaxDeliveries, g.DeadLetter)},
		{"backoff", g.Backoff},
		{"in flight", fmt.Sprintf("%d a member", g.MaxInFlight)},
	})
	if err != nil {
		return err
	}
	if len(g.Members) > 0 {
		fmt.Fprintln(r.out)
		table := [][]string{{"MEMBER", "NODE", "SINCE", "PARTITIONS"}}
		for _, m := range g.Members {
			table = append(table, []string{m.Member, m.Node, m.Since, partitionList(m.Partitions)})
		}
		if err := rows(r.out, table); err != nil {
			return err
		}
	}
	fmt.Fprintln(r.out)
	table := [][]string{{"PARTITION", "MEMBER", "COMMITTED", "IN FLIGHT", "END", "LAG", "OLDEST", "REDELIVERED", "DEAD", "EXPIRED"}}
	for _, p := range g.Partitions {
		oldest := ""
		if p.OldestUnacked != nil {
			oldest = *p.OldestUnacked
		}
		table = append(table, []string{
			strconv.FormatUint(uint64(p.Partition), 10), p.Member, place(p.Committed), place(p.InFlight), place(p.End), place(p.Lag), oldest, place(p.Redelivered), place(p.Dead), place(p.Expired),
		})
	}
	return rows(r.out, table)
}

// partitionList is a list of partitions as people write it: 0-3,7.
func partitionList(all []uint32) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		part := strconv.FormatUint(uint64(all[i]), 10)
		if j > i {
			part += "-" + strconv.FormatUint(uint64(all[j]), 10)
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func newGroupReset(p process) *cobra.Command {
	var from string
	var offsets []string
	var dryRun, force bool
	cmd := &cobra.Command{
		Use:   "reset TOPIC GROUP",
		Short: "Move a group to other offsets",
		Long: `Reset moves a group: with --from every partition, with --offset the ones named. What
was leased or acknowledged before counts no more. While the group has members it is
refused, unless --force: they are fenced, and go on at the new offsets once they have
joined again.

Look at what it would do with --dry-run first.`,
		Example: `  tidewire group reset orders billing --from earliest --dry-run
  tidewire group reset orders billing --from 2026-01-31T15:04:05Z
  tidewire group reset orders billing --offset 0=42 --offset 3=7`,
		Args: topicAndGroup,
	}
	r := addRemote(cmd, p)
	fs := cmd.Flags()
	fs.StringVar(&from, "from", "", "go on at earliest, latest, a `time` (RFC 3339), or so long ago (15m)")
	fs.StringArrayVar(&offsets, "offset", nil, "go on at this offset of this partition: `PARTITION=OFFSET`; may be given again")
	fs.BoolVar(&dryRun, "dry-run", false, "only tell what would be moved")
	fs.BoolVar(&force, "force", false, "also while the group has members")
	exclude(cmd, "from", "offset")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		move, err := moveOf(from, offsets, time.Now())
		if err != nil {
			return usage(err)
		}
		move.DryRun, move.Force = dryRun, force
		c, err := r.open()
		if err != nil {
			return err
		}
		raw, err := c.MoveGroup(cmd.Context(), args[0], args[1], move)
		if err != nil {
			return err
		}
		if !r.table() {
			return r.line(raw)
		}
		return showMove(r, raw, dryRun)
	}
	return cmd
}

func moveOf(from string, offsets []string, now time.Time) (client.Move, error) {
	if from == "" && len(offsets) == 0 {
		return client.Move{}, fmt.Errorf("group reset needs --from or --offset")
	}
	if from != "" {
		at, _, err := startAt(from, now)
		return client.Move{From: &at}, err
	}
	places, err := placesOf("offset", offsets)
	return client.Move{Offsets: places}, err
}

// placesOf reads offsets by partition, as a flag has them that may be given again.
func placesOf(flag string, texts []string) (map[uint32]int64, error) {
	places := map[uint32]int64{}
	for _, text := range texts {
		partition, offset, ok := strings.Cut(text, "=")
		p, err := strconv.ParseUint(partition, 10, 32)
		o, err2 := strconv.ParseInt(offset, 10, 64)
		if !ok || err != nil || err2 != nil || o < 0 {
			return nil, fmt.Errorf("--%s: %q is not PARTITION=OFFSET, such as 0=42", flag, text)
		}
		if _, twice := places[uint32(p)]; twice {
			return nil, fmt.Errorf("--%s: partition %d is given twice", flag, p)
		}
		places[uint32(p)] = o
	}
	return places, nil
}

func showMove(r *remote, raw json.RawMessage, dryRun bool) error {
	var answer struct {
		Partitions []struct {
			Partition uint32 `json:"partition"`
			From      *int64 `json:"from"`
			To        *int64 `json:"to"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("the answer is not as expected: %w", err)
	}
	to := "TO"
	if dryRun {
		to = "WOULD BE"
	}
	table := [][]string{{"PARTITION", "FROM", to}}
	for _, p := range answer.Partitions {
		table = append(table, []string{strconv.FormatUint(uint64(p.Partition), 10), place(p.From), place(p.To)})
	}
	return rows(r.out, table)
}

func newGroupDelete(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC GROUP",
		Short: "Forget a group, and how far it has come",
		Long: `Delete forgets a group: its members are fenced, and how far it has come is gone. The
records of the topic stay. At a terminal it asks first; a script says --yes.`,
		Example: "  tidewire group delete orders billing --yes",
		Args:    topicAndGroup,
	}
	deletes(cmd, p, func(args []string) removal {
		topic, group := args[0], args[1]
		return removal{
			name: group, what: "how far group " + visible(group) + " has come on " + visible(topic), does: "group delete forgets",
			line:   map[string]string{"topic": topic, "group": group},
			delete: func(ctx context.Context, c *client.Client) error { return c.DeleteGroup(ctx, topic, group) },
		}
	})
	return cmd
}
