package storage

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"tidewire/internal/ident"
)

// The names in a data folder:
//
//	storage.json                          id and small values
//	lock
//	journal/
//	topics/<topic id>/<partition>/        only once there is data
//	    <base offset>.log                 batches, back to back
//	    <base offset>.index               cache
//	    <offset>.producers                producer state as of that offset
//	quarantine/                           what was set aside, never deleted
const (
	segmentSuffix  = ".log"
	indexSuffix    = ".index"
	snapshotSuffix = ".producers"
)

func metaPath(dir string) string      { return filepath.Join(dir, "storage.json") }
func lockPath(dir string) string      { return filepath.Join(dir, "lock") }
func journalDir(dir string) string    { return filepath.Join(dir, "journal") }
func topicsDir(dir string) string     { return filepath.Join(dir, "topics") }
func quarantineDir(dir string) string { return filepath.Join(dir, "quarantine") }

func partitionDir(dir string, p ident.Partition) string {
	return filepath.Join(topicsDir(dir), p.Topic.String(), strconv.FormatUint(uint64(p.Index), 10))
}

func parsePartition(topic, index string) (ident.Partition, bool) {
	id, err := uuid.Parse(topic)
	if err != nil || id.String() != topic {
		return ident.Partition{}, false
	}
	n, err := strconv.ParseUint(index, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != index {
		return ident.Partition{}, false
	}
	return ident.Partition{Topic: ident.TopicID(id), Index: ident.Index(n)}, true
}

func offsetName(o ident.Offset, suffix string) string { return fmt.Sprintf("%020d%s", o, suffix) }

func parseOffsetName(name, suffix string) (ident.Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return ident.Offset(n), err == nil && n >= 0
}
