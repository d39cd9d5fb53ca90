package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newTopicPurge(p process) *cobra.Command {
	var before []string
	cmd := &cobra.Command{
		Use:   "purge TOPIC",
		Short: "Delete the oldest records of a topic",
		Long: `Purge deletes what stands below an offset of each partition that is named, or, without
--before, every record that is there now. What a group has not done with yet is expired for
it, as if retention had come. At a terminal it asks first; a script says --yes.`,
		Example: `  tidewire topic purge orders --before 0=42 --before 1=7
  tidewire topic purge orders --yes`,
		Args: oneTopic,
	}
	r := addRemote(cmd, p)
	cmd.Flags().StringArrayVar(&before, "before", nil, "delete what stands below this offset of this partition: `PARTITION=OFFSET`; may be given again")
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask; needed where nobody can be asked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		topic := args[0]
		var places map[uint32]int64
		if cmd.Flags().Changed("before") {
			var err error
			if places, err = placesOf("before", before); err != nil {
				return usage(err)
			}
		}
		c, err := r.open()
		if err != nil {
			return err
		}
		if !*yes {
			if err := confirm(r, topic, purges(topic, places), "topic purge deletes"); err != nil {
				return err
			}
		}
		purged, err := c.PurgeTopic(cmd.Context(), topic, places)
		if err != nil {
			return err
		}
		if !r.table() {
			return r.line(purged.Raw)
		}
		table := [][]string{{"PARTITION", "EARLIEST"}}
		for _, at := range purged.Partitions {
			table = append(table, []string{fmt.Sprint(at.Partition), fmt.Sprint(at.Earliest)})
		}
		return rows(r.out, table)
	}
	return cmd
}

// purges says which records go.
func purges(topic string, before map[uint32]int64) string {
	if before == nil {
		return "every record that " + visible(topic) + " has now"
	}
	var below []string
	for _, p := range slices.Sorted(maps.Keys(before)) {
		below = append(below, fmt.Sprintf("%d of partition %d", before[p], p))
	}
	return "what " + visible(topic) + " has below offset " + strings.Join(below, " and ")
}
