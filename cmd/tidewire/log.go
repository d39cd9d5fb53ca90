package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"tidewire/broker/storage"
	"tidewire/coordinator"
	"tidewire/coordinator/consensus"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

func newLog(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look at a data folder",
		Args:  nearestCommand,
		RunE:  group,
	}
	cmd.AddCommand(newLogVerify(p))
	return cmd
}

const (
	defaultData  = "./tidewire-data"
	dataVariable = "TIDEWIRE_DATA"
)

func newLogVerify(p process) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read a whole data folder and name all damage (exit 1: there is some)",
		Long: `Verify reads everything in a data folder: the journal, every batch of every segment,
indexes, producer snapshots, and the coordinator's store. It changes nothing. Each
fault is named with its file, byte and offset, topics by their names where the
coordinator's store can be read.

Damage is what was kept and is not there any more; the exit code is then 1. Notes are
what a node makes good by itself, such as an index that is rebuilt. Beside a running
node the coordinator's store is left out.`,
		Example: `  tidewire log verify
  tidewire log verify --data /var/lib/tidewire --output json | jq 'select(.damage)'`,
		Args: noArguments,
	}
	r := &remote{process: p}
	cmd.Flags().StringVar(&data, "data", "", "the data `folder`; "+dataVariable+" or "+defaultData+" if not given")
	_ = cmd.MarkFlagDirname("data")
	r.addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := r.checkOutput(); err != nil {
			return err
		}
		return verify(r, cmp.Or(data, p.variable(dataVariable), defaultData))
	}
	return cmd
}

// finding is one thing that verify has to say.
type finding struct {
	Damage    bool    `json:"damage"`
	Topic     string  `json:"topic,omitempty"` // empty: nobody could say its name
	TopicID   string  `json:"topic_id,omitempty"`
	Partition *uint32 `json:"partition,omitempty"`
	File      string  `json:"file,omitempty"`
	Byte      int64   `json:"byte"`
	Offset    *int64  `json:"offset,omitempty"`
	Text      string  `json:"text"`
}

func (f finding) String() string {
	what := "note"
	if f.Damage {
		what = "DAMAGE"
	}
	where := f.File
	if f.Byte > 0 {
		where += ", byte " + strconv.FormatInt(f.Byte, 10)
	}
	if f.Partition != nil {
		where += fmt.Sprintf(" (partition %s/%d, offset %d)", cmp.Or(f.Topic, f.TopicID), *f.Partition, *f.Offset)
	}
	return fmt.Sprintf("%s: %s: %s", what, where, f.Text)
}

func verify(r *remote, dir string) error {
	damaged := 0
	var outputErr error
	say := func(f finding) {
		if f.Damage {
			damaged++
		}
		var err error
		if r.table() {
			_, err = fmt.Fprintln(r.out, visible(f.String()))
		} else {
			err = r.line(f)
		}
		outputErr = errors.Join(outputErr, err)
	}
	// Without them ids have to do: a running node has the store for itself, and what
	// is wrong with it is told below.
	names, _ := coordinator.Names(dir)
	sum, err := storage.Verify(vfs.OS{}, dir, func(f storage.Finding) { say(storageFinding(f, names)) })
	if err != nil {
		return fmt.Errorf("verify %s: %w", dir, err)
	}
	store, err := verifyCoordinator(dir, sum, say)
	if err := errors.Join(err, outputErr); err != nil {
		return err
	}
	if err := printSummary(r, dir, sum, names, store, damaged); err != nil {
		return err
	}
	if damaged > 0 {
		return &exitError{exitFailed, fmt.Errorf("%s is damaged: %s", dir, faults(damaged))}
	}
	return nil
}

func faults(n int) string {
	if n == 1 {
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", n)
}

func storageFinding(f storage.Finding, names map[ident.TopicID]string) finding {
	out := finding{Damage: f.Damage, File: f.File, Byte: f.Pos, Text: f.Text}
	if f.Partition != (ident.Partition{}) {
		index, offset := uint32(f.Partition.Index), int64(f.Offset)
		out.Topic, out.TopicID, out.Partition, out.Offset = names[f.Partition.Topic], f.Partition.Topic.String(), &index, &offset
	}
	return out
}

// coordinatorStore is what became of looking at the store of topics and layouts.
type coordinatorStore struct {
	consensus.Report
	state string
}

const (
	storeRight   = "right"
	storeDamaged = "damaged"
	storeMissing = "missing"
	storeInUse   = "in-use"
)

// verifyCoordinator looks at the store of topics and layouts. A running node
// holds it open alone.
func verifyCoordinator(dir string, sum storage.Summary, say func(finding)) (coordinatorStore, error) {
	home := filepath.Join(dir, "raft")
	if sum.Live {
		say(finding{File: home, Text: "a node is running on this folder: the coordinator's store was left out"})
		return coordinatorStore{state: storeInUse}, nil
	}
	report, err := verifyStore(vfs.OS{}, dir)
	var damage *consensus.Damage
	switch {
	case errors.As(err, &damage):
		say(finding{Damage: true, File: damage.File, Text: damage.Err.Error()})
		return coordinatorStore{state: storeDamaged}, nil
	case err != nil:
		return coordinatorStore{}, fmt.Errorf("verify %s: %w", home, err)
	case !report.Exists && len(sum.Partitions) > 0:
		say(finding{Damage: true, File: home, Text: "the coordinator's store is missing, although the folder holds partitions"})
	}
	if !report.Exists {
		return coordinatorStore{state: storeMissing}, nil
	}
	return coordinatorStore{report, storeRight}, nil
}

func (s coordinatorStore) String() string {
	switch s.state {
	case storeRight:
		return fmt.Sprintf("coordinator up to entry %d", s.Last)
	case storeInUse:
		return "coordinator in use, not looked at"
	}
	return "coordinator " + s.state
}

func printSummary(r *remote, dir string, sum storage.Summary, names map[ident.TopicID]string, store coordinatorStore, damaged int) error {
	var records int64
	table := [][]string{{"PARTITION", "START", "END", "RECORDS", "SEGMENTS", "BATCHES", "BYTES", "STATE"}}
	for _, p := range sum.Partitions {
		records += p.Records
		if !r.table() {
			err := r.line(map[string]any{
				"topic": names[p.Partition.Topic], "topic_id": p.Partition.Topic.String(), "partition": p.Partition.Index, "start": p.Start, "end": p.End, "records": p.Records,
				"segments": p.Segments, "batches": p.Batches, "bytes": p.Bytes, "in_journal": p.InJournal, "damaged": p.Damaged,
			})
			if err != nil {
				return err
			}
			continue
		}
		state := "right"
		if p.Damaged {
			state = "DAMAGED"
		}
		table = append(table, []string{
			fmt.Sprintf("%s/%d", cmp.Or(names[p.Partition.Topic], p.Partition.Topic.String()), p.Partition.Index), strconv.FormatInt(int64(p.Start), 10), strconv.FormatInt(int64(p.End), 10), strconv.FormatInt(p.Records, 10),
			strconv.Itoa(p.Segments), strconv.Itoa(p.Batches), strconv.FormatInt(p.Bytes, 10), state,
		})
	}
	if !r.table() {
		return r.line(map[string]any{
			"data": dir, "storage": sum.Storage.String(), "live": sum.Live, "partitions": len(sum.Partitions), "records": records,
			"journal":     map[string]any{"files": sum.Journal.Files, "frames": sum.Journal.Frames, "torn_bytes": sum.Journal.TornBytes},
			"coordinator": map[string]any{"state": store.state, "first": store.First, "last": store.Last, "term": store.Term, "snapshot": store.Snapshot},
			"faults":      damaged,
		})
	}
	if err := rows(r.out, table); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.out, "%d records in %d partitions; journal of %d files and %d frames; %s; %s\n",
		records, len(sum.Partitions), sum.Journal.Files, sum.Journal.Frames, store, faults(damaged))
	return err
}
